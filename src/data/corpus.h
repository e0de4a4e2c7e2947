// The memory-mapped training corpus: sentence pairs as piece ids, without bos and eos. docs/formats.md has the layout.
//
// One copy a machine: every process maps the same pages. Thread-safe: const after open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/side.h"

namespace tandem {

class Corpus {
 public:
  // Maps the file and checks its sizes, every offset and id and, with `verify`, its checksum; fails naming file and
  // fault.
  static Corpus open(const std::filesystem::path& path, bool verify = true);

  Corpus(Corpus&&) noexcept;
  Corpus& operator=(Corpus&&) noexcept;
  ~Corpus();

  int64_t size() const;                           // sentence pairs
  int64_t length(Side side, int64_t pair) const;  // pieces
  int64_t tokens(Side side) const;                // pieces in all
  int32_t vocabulary(Side side) const;            // every id is below
  void append(Side side, int64_t pair, std::vector<int32_t>& ids) const;
  const std::string& checksum() const;  // of the content, as hexadecimal digits

 private:
  struct State;
  explicit Corpus(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
