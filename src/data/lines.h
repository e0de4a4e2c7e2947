// Lines of a text file that is plain, gzip, xz or zstd (recognised by content, not by name), or of standard input.
//
// Every fault (a missing, unreadable, binary or truncated file, a directory) is a one-line error that names the file.
// Memory is bounded whatever the file holds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tandem::data {

class LineReader {
 public:
  static constexpr size_t kLongestLine = size_t{1} << 20;  // bytes

  // "-" is standard input. If `keep_mark`, a byte-order mark stays the first character of the text.
  explicit LineReader(const std::string& path, bool keep_mark = false);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Reads the next line without its end ("\n" or "\r\n") and without the file's byte-order mark (see above). A line
  // longer than kLongestLine is cut off there, and cut() is true. Returns false at the end of the file.
  bool next(std::string& line);
  bool cut() const;

  int64_t lines() const;            // lines read so far
  uint64_t bytes() const;           // bytes of text read so far, including line ends
  double share() const;             // share of the file that has been read; negative if the size is unknown
  const std::string& name() const;  // the file's name in messages

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Calls take(line, reader) for each line of a text that its caller keeps in memory. Fails if a line was cut, and for
// more than kMostLines lines or kMostBytes bytes: a packed file of a megabyte may hold billions of lines.
constexpr int64_t kMostLines = 10'000'000;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
void read_whole(const std::string& path, bool keep_mark,
                const std::function<void(std::string& line, const LineReader& reader)>& take);

}  // namespace tandem::data
