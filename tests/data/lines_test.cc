#include "data/lines.h"

#include <gtest/gtest.h>

#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filter/lzma.hpp>
#include <boost/iostreams/filter/zstd.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "data/scratch.h"

namespace tandem::data {
namespace {

namespace io = boost::iostreams;

enum class Packing { plain, gzip, xz, zstd };

std::string packed(const std::string& text, Packing packing) {
  std::ostringstream result;
  {
    io::filtering_ostream out;
    if (packing == Packing::gzip) {
      out.push(io::gzip_compressor());
    } else if (packing == Packing::xz) {
      out.push(io::lzma_compressor());
    } else if (packing == Packing::zstd) {
      out.push(io::zstd_compressor());
    }
    out.push(result);
    out << text;
  }
  return result.str();
}

class Lines : public testing::Scratch {
 protected:
  // All lines of a file with this content.
  std::vector<std::string> lines_of(const std::string& content) {
    const std::string path = (directory_ / "file").string();
    write_file(path, content);
    LineReader reader(path);
    std::vector<std::string> lines;
    for (std::string line; reader.next(line);) {
      lines.push_back(line);
    }
    EXPECT_EQ(reader.lines(), static_cast<int64_t>(lines.size()));
    return lines;
  }

  std::string error_of(const std::string& content) {
    return testing::message_of([&] { lines_of(content); });
  }
};

using Strings = std::vector<std::string>;

TEST_F(Lines, EndsAndByteOrderMark) {
  EXPECT_EQ(lines_of("a\nb\n"), (Strings{"a", "b"}));
  EXPECT_EQ(lines_of("a\nb"), (Strings{"a", "b"}));
  EXPECT_EQ(lines_of("a\r\n\r\nb\r"), (Strings{"a", "", "b"}));
  EXPECT_EQ(lines_of("\xEF\xBB\xBF"
                     "a\n\xEF\xBB\xBF"
                     "b\n"),
            (Strings{"a",
                     "\xEF\xBB\xBF"
                     "b"}));
  EXPECT_EQ(lines_of("\n"), (Strings{""}));
  EXPECT_EQ(lines_of(""), (Strings{}));
}

TEST_F(Lines, EveryPackingByContent) {
  Strings expected;
  std::string text;
  for (int i = 0; i < 200000; ++i) {
    expected.push_back("line " + std::to_string(i * 7919LL % 100003));
    text += expected.back() + "\n";
  }
  for (const Packing packing : {Packing::plain, Packing::gzip, Packing::xz, Packing::zstd}) {
    SCOPED_TRACE(static_cast<int>(packing));
    const std::string content = packed(text, packing);
    EXPECT_EQ(lines_of(content), expected);
    if (packing != Packing::plain) {
      ASSERT_LT(content.size(), text.size() / 2);
      Strings twice = expected;  // files packed one after the other
      twice.insert(twice.end(), expected.begin(), expected.end());
      EXPECT_EQ(lines_of(content + content), twice);
    }
  }
}

TEST_F(Lines, CutOffOrDamagedPackingIsFound) {
  std::string text;
  for (int i = 0; i < 30000; ++i) {
    text += "line " + std::to_string(i * 7919LL % 100003) + "\n";
  }
  for (const Packing packing : {Packing::gzip, Packing::xz, Packing::zstd}) {
    SCOPED_TRACE(static_cast<int>(packing));
    const std::string content = packed(text, packing);
    for (const size_t missing : {size_t{1}, size_t{3}, content.size() / 2, content.size() - 7}) {
      const std::string error = error_of(content.substr(0, content.size() - missing));
      EXPECT_NE(error.find((directory_ / "file").string() + " is "), std::string::npos) << missing << ": " << error;
      EXPECT_NE(error.find("truncated"), std::string::npos) << missing << ": " << error;
    }
    EXPECT_NE(error_of(content + "rubbish").find("damaged"), std::string::npos);
  }
}

TEST_F(Lines, EmptyFilesOfEveryPacking) {
  for (const Packing packing : {Packing::gzip, Packing::xz, Packing::zstd}) {
    EXPECT_EQ(lines_of(packed("", packing)), (Strings{})) << static_cast<int>(packing);
  }
}

TEST_F(Lines, NotATextFile) {
  EXPECT_NE(error_of(std::string("ab\ncd\0ef\n", 9)).find("line 2 has a zero byte"), std::string::npos);
  EXPECT_THROW(LineReader((directory_ / "none").string()), Error);
  try {
    LineReader reader(directory_.string());
    ADD_FAILURE() << "opened a directory";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), directory_.string() + " is a directory, not a text file");
  }
}

TEST_F(Lines, VeryLongLineIsCutAndTheNextIsWhole) {
  const std::string path = (directory_ / "file").string();
  write_file(path,
             std::string(5 * LineReader::kLongestLine, 'x') + "\nshort\n" + std::string(LineReader::kLongestLine, 'y'));
  LineReader reader(path);
  std::string line;
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(line.size(), LineReader::kLongestLine);
  EXPECT_TRUE(reader.cut());
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(line, "short");
  EXPECT_FALSE(reader.cut());
  EXPECT_GT(reader.share(), 0.8);
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(line.size(), LineReader::kLongestLine);
  EXPECT_FALSE(reader.cut());
  EXPECT_FALSE(reader.next(line));
  EXPECT_EQ(reader.bytes(), 6 * LineReader::kLongestLine + 7);
  EXPECT_DOUBLE_EQ(reader.share(), 1.0);
}

}  // namespace
}  // namespace tandem::data
