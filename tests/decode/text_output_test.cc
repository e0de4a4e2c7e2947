#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "decode/translate_stream.h"

namespace tandem::decode {
namespace {

namespace fs = std::filesystem;

// Works in a directory of its own, so that relative names can be tried.
class TextOutputTest : public ::testing::Test {
 protected:
  TextOutputTest()
      : before_(fs::current_path()), place_(fs::temp_directory_path() / fmt::format("tandem-{}", getpid())) {
    fs::create_directories(place_);
    fs::current_path(place_);
  }
  ~TextOutputTest() override {
    fs::current_path(before_);
    fs::remove_all(place_);
  }

  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(place_), fs::directory_iterator{}));
  }

  fs::path before_, place_;
};

TEST_F(TextOutputTest, ARelativeNameIsWrittenWhole) {
  TextOutput output("out.txt");
  output.write("one\n");
  EXPECT_FALSE(fs::exists("out.txt")) << "visible before it is complete";
  output.write("two\n");
  output.finish();
  EXPECT_EQ(read_file("out.txt"), "one\ntwo\n");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(TextOutputTest, NothingIsLeftAndTheOldStaysWithoutFinish) {
  write_file("out.txt", "old\n");
  {
    TextOutput output("out.txt");
    output.write("new\n");
  }
  EXPECT_EQ(read_file("out.txt"), "old\n");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(TextOutputTest, ALinkStaysALinkAndADeviceADevice) {
  write_file("real.txt", "old\n");
  fs::create_symlink("real.txt", "link.txt");
  TextOutput output("link.txt");
  output.write("new\n");
  output.finish();
  EXPECT_TRUE(fs::is_symlink("link.txt"));
  EXPECT_EQ(read_file("real.txt"), "new\n");

  TextOutput nowhere("/dev/null");
  EXPECT_FALSE(nowhere.is_file());
  nowhere.write("text");
  nowhere.finish();
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(TextOutputTest, RefusesWhatCannotBeWritten) {
  EXPECT_THROW(TextOutput("."), Error);
  EXPECT_THROW(TextOutput("missing/out.txt"), Error);
}

}  // namespace
}  // namespace tandem::decode
