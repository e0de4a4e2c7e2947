// A metrics file in segments, so that a long run stays bounded (docs/formats.md).
//
//   metrics/0.jsonl                  the newest records; only this one grows
//   metrics/0.000009-000009.jsonl    closed
//   metrics/0.000001-000008.jsonl    eight that were closed, thinned 8:1
//
// A segment whose numbers lie within another's is superseded by it: it was about to be removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

namespace tandem::observe {

struct Segment {
  std::filesystem::path path;
  int64_t first = 0, last = 0;  // range of the closed files that it holds
  int64_t files() const { return last - first + 1; }
};

struct Segments {
  std::vector<Segment> closed;                   // oldest first
  std::vector<std::filesystem::path> leftovers;  // superseded, or half written by a dead process
  int64_t next() const { return closed.empty() ? 1 : closed.back().last + 1; }
};

// `active`: metrics/<rank>.jsonl.
Segments list_segments(const std::filesystem::path& active);
std::filesystem::path segment_path(const std::filesystem::path& active, int64_t first, int64_t last);
// Where a segment is written before it gets its name.
std::filesystem::path partial_path(const std::filesystem::path& active);

// Opens closed segments and the active file, oldest first, as they are at one moment, although a trainer may be
// renaming them. Empty if there are none; fails if one cannot be read.
std::vector<std::ifstream> open_segments(const std::filesystem::path& active);

}  // namespace tandem::observe
