// The memory-mapped training corpus: sentence pairs as token ids, without bos and eos. docs/formats.md has the layout.
//
// All processes of a machine map the same pages. Thread-safe: const after open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/side.h"

namespace tandem::data {

class Corpus {
 public:
  // Maps the file and checks its sizes, every offset and id and, if `verify`, its checksum; errors name file and fault.
  static Corpus open(const std::filesystem::path& path, bool verify = true);

  Corpus(Corpus&&) noexcept;
  Corpus& operator=(Corpus&&) noexcept;
  ~Corpus();

  int64_t size() const;                           // sentence pairs
  int64_t length(Side side, int64_t pair) const;  // tokens
  int64_t tokens(Side side) const;                // total number of tokens
  int32_t vocabulary(Side side) const;            // every id is below
  void append(Side side, int64_t pair, std::vector<int32_t>& ids) const;
  const std::string& checksum() const;  // the content's checksum as hexadecimal digits

 private:
  struct State;
  explicit Corpus(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::data
