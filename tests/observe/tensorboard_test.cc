#include "observe/tensorboard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "core/error.h"
#include "temporary_directory.h"

namespace tandem::observe {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TensorBoard, checksum_vectors) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283);
  EXPECT_EQ(masked_crc32c("123456789"), 0xC78AB0E5);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AA);  // RFC 3720
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(TensorBoard, record_vectors) {
  EXPECT_EQ(hex(frame(version_event(1.0))),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  EXPECT_EQ(hex(frame(scalar_event(2.0, 7, {{"loss", 1.5}}))),
            "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f7373150000c03f1b484874");
}

TEST(TensorBoard, text_vector) {
  const std::string value = "0a066366672f7478420c0807120412020801420268694a080a060a0474657874";
  // Event: wall_time, step, summary (field 5) of one value (field 1) of 32 bytes.
  EXPECT_EQ(hex(text_event(1.0, 3, "cfg/tx", "hi")), "09000000000000f03f10032a220a20" + value);
}

TEST(TensorBoard, names_begin_with_the_time_and_sort_in_the_order_of_writing) {
  const testing::TemporaryDirectory directory;
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    const EventWriter writer(directory.path() / "events", 0);
    names.push_back(writer.path().filename().string());
    EXPECT_TRUE(names.back().starts_with("events.out.tfevents.")) << names.back();
    EXPECT_EQ(names.back().find('.', 20), 30U) << "ten digits of seconds: " << names.back();
    EXPECT_TRUE(names.back().ends_with(fmt::format(".{}.0", getpid()))) << names.back();
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_NE(names[0], names[1]);
}

TEST(TensorBoard, file_begins_with_its_version_and_holds_what_was_written) {
  const testing::TemporaryDirectory directory;
  EventWriter writer(directory.path(), 5);
  const size_t before = read_all(writer.path()).size();
  writer.write(scalar_event(2.0, 7, {{"loss", 1.5}}));
  const std::string bytes = read_all(writer.path());
  EXPECT_EQ(bytes.substr(21, 15),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(bytes.substr(before), frame(scalar_event(2.0, 7, {{"loss", 1.5}})));
  EXPECT_NE(hex(bytes).find("10053a020801"), std::string::npos) << "session start at step 5";
}

TEST(TensorBoard, says_where_it_cannot_write) {
  try {
    const EventWriter writer("/proc/no-such-directory", 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/proc/no-such-directory"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem::observe
