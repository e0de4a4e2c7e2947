// Lines of a text file: plain, gzip, xz or zstd (told by content, not by name), or standard input.
//
// Every fault of a file ends as one sentence that names it: missing, unreadable, a directory, binary, cut off. Memory
// is bounded whatever the file holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tandem {

class LineReader {
 public:
  static constexpr size_t kLongestLine = size_t{1} << 20;  // bytes

  // "-" is standard input. With `keep_mark` a byte-order mark stays the first character of the text.
  explicit LineReader(const std::string& path, bool keep_mark = false);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end ("\n" or "\r\n") and without the file's byte-order mark (see above). Of a line longer
  // than kLongestLine the beginning, and cut() is true. False at the end of the file.
  bool next(std::string& line);
  bool cut() const;

  int64_t lines() const;            // read so far
  uint64_t bytes() const;           // of text, read so far, line ends counted
  double share() const;             // of the file that has been read; negative where the size is not known
  const std::string& name() const;  // for messages

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
