// The layout of train.corpus, shared by its reader and its writer; docs/formats.md describes it.
#pragma once

#include <array>
#include <cstdint>

namespace tandem::data {

// File: magic, ids (pair after pair, source then target), zeros up to a multiple of 8, offsets, CorpusFooter.
// offsets: 2 * pairs + 1 numbers of 64 bits, counted in ids: pair i has its source in [offsets[2i], offsets[2i+1]) and
// its target in [offsets[2i+1], offsets[2i+2]). All numbers are little-endian.
constexpr std::array<char, 8> kCorpusMagic = {'T', 'A', 'N', 'D', 'E', 'M', 'C', 'O'};
constexpr uint32_t kCorpusVersion = 1;

struct CorpusFooter {
  uint64_t pairs = 0;
  uint64_t tokens[2] = {0, 0};      // source, target
  uint32_t vocabulary[2] = {0, 0};  // every id is below
  uint32_t id_bytes = 0;            // 2 or 4
  uint32_t version = kCorpusVersion;
  // CRC-64/XZ of all bytes of the file before this field, as hexadecimal digits. As a number it would make the checksum
  // of the whole file the same for every content: a CRC over data and its own CRC is a constant.
  std::array<char, 16> checksum{};
  std::array<char, 8> magic = kCorpusMagic;
};
static_assert(sizeof(CorpusFooter) == 64);

}  // namespace tandem::data
