#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

#include "core/error.h"
#include "temporary_directory.h"

namespace tandem::inline core {
namespace {

namespace fs = std::filesystem;
using testing::message_of;

class FileTest : public ::testing::Test {
 protected:
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  const testing::TemporaryDirectory temporary_;
  const fs::path& directory_ = temporary_.path();
};

// /proc has no fsync: it answers EINVAL, as some network file systems do for directories.
TEST(File, DirectoriesWithoutFsyncCountAsWritten) {
  EXPECT_NO_THROW(sync_directory("/proc/self"));
  EXPECT_THROW(sync_directory("/proc/self/none"), Error);
}

TEST(Checksum, IsCrc64Xz) {
  EXPECT_EQ(checksum("123456789"), "995dc9bbdf1939fa");
  Checksum parts;
  parts.add("1234");
  parts.add("");
  parts.add("56789");
  EXPECT_EQ(parts.hex(), "995dc9bbdf1939fa");
  EXPECT_EQ(checksum(""), "0000000000000000");
}

TEST(Checksum, SeesEveryFlippedBit) {
  std::string data = "The quick brown fox";
  const std::string whole = checksum(data);
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(checksum(data), whole) << bit;
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
  }
}

TEST_F(FileTest, WritesReadsReplaces) {
  const fs::path path = directory_ / "file";
  write_file(path, "first");
  write_file(path, std::string("se\0cond", 7));
  EXPECT_EQ(read_file(path), std::string("se\0cond", 7));
  EXPECT_EQ(checksum_file(path), checksum(read_file(path)));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, NamesWhatItCannotRead) {
  EXPECT_EQ(message_of([&] { read_file(directory_ / "none"); }),
            "cannot read " + (directory_ / "none").string() + ": No such file or directory");
  EXPECT_NE(message_of([&] { read_file(directory_); }).find("Is a directory"), std::string::npos);
  write_file(directory_ / "big", std::string(1000, 'x'));
  EXPECT_NE(message_of([&] { read_file(directory_ / "big", 999); }).find("larger than the 999 bytes"),
            std::string::npos);
  EXPECT_EQ(read_file(directory_ / "big", 1000).size(), 1000U);
}

TEST_F(FileTest, NamesWhatItCannotWrite) {
  EXPECT_NE(message_of([&] { write_file(directory_ / "no" / "file", "x"); }).find("No such file"), std::string::npos);
  fs::create_directory(directory_ / "taken");
  EXPECT_NE(message_of([&] { write_file(directory_ / "taken", "x"); }).find("cannot write"), std::string::npos);
  EXPECT_EQ(entries(), 1U) << "nothing is left beside the target";
}

TEST_F(FileTest, WriterCountsAndSums) {
  const std::string line(300'001, 'y');
  FileWriter writer(directory_ / "file");
  for (int i = 0; i < 10; ++i) {
    writer.write(line);
  }
  writer.finish();
  EXPECT_EQ(writer.size(), 3'000'010U);
  EXPECT_EQ(fs::file_size(directory_ / "file"), writer.size());
  EXPECT_EQ(checksum_file(directory_ / "file"), writer.checksum());
}

TEST_F(FileTest, UnfinishedFileIsRemoved) {
  {
    FileWriter writer(directory_ / "file");
    writer.write("something");
  }
  EXPECT_EQ(entries(), 0U);
}

TEST_F(FileTest, FullDiskIsOneSentence) {
  if (::mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "a small tmpfs cannot be mounted here (needs root): the full disk is not tested";
  }
  const std::string error = message_of([&] { write_file(directory_ / "file", std::string(3 << 20, 'z')); });
  const size_t left = entries();
  ::umount(directory_.c_str());
  EXPECT_NE(error.find("No space left on device; free some space"), std::string::npos) << error;
  EXPECT_EQ(left, 0U);
}

TEST_F(FileTest, DirectoryAppearsComplete) {
  const fs::path path = directory_ / "a" / "out";
  NewDirectory made(path);
  write_file(made.temporary() / "file", "content");
  EXPECT_FALSE(fs::exists(path));
  made.commit();
  EXPECT_EQ(read_file(path / "file"), "content");
  EXPECT_FALSE(fs::exists(made.temporary()));
}

TEST_F(FileTest, DirectoryWithoutCommitLeavesNothing) {
  {
    NewDirectory made(directory_ / "out");
    write_file(made.temporary() / "file", "content");
  }
  EXPECT_EQ(entries(), 0U);
}

TEST_F(FileTest, DirectoryReplacesOnlyWhenAllowed) {
  const fs::path path = directory_ / "out";
  fs::create_directory(path);
  write_file(path / "old", "old");
  EXPECT_NE(message_of([&] { NewDirectory refused(path); }).find("exists already"), std::string::npos);
  { NewDirectory abandoned(path, true); }
  EXPECT_EQ(read_file(path / "old"), "old");
  NewDirectory made(path.string() + "/", true);
  write_file(made.temporary() / "new", "new");
  made.commit();
  EXPECT_EQ(read_file(path / "new"), "new");
  EXPECT_FALSE(fs::exists(path / "old"));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, DirectoryThatAppearedMeanwhileIsKept) {
  const fs::path path = directory_ / "out";
  NewDirectory made(path);
  fs::create_directory(path);
  write_file(path / "other", "other");
  EXPECT_NE(message_of([&] { made.commit(); }).find("put the complete directory in place"), std::string::npos);
  EXPECT_EQ(read_file(path / "other"), "other");
}

TEST_F(FileTest, AbandonedPartialIsRemovedAndALivingOneKept) {
  fs::create_directory(directory_ / ".out.partial.abcdef");
  write_file(directory_ / ".out.partial.abcdef" / "file", "x");
  NewDirectory first(directory_ / "out");
  EXPECT_FALSE(fs::exists(directory_ / ".out.partial.abcdef"));
  NewDirectory second(directory_ / "out");
  EXPECT_TRUE(fs::exists(first.temporary()));
}

}  // namespace
}  // namespace tandem::inline core
