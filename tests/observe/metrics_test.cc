#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "core/error.h"
#include "observe/metrics_writer.h"
#include "read_metrics.h"
#include "temporary_directory.h"

namespace tandem::observe {
namespace {

using testing::read_metrics;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void append(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::app) << bytes;
}

Record train(int64_t step) {
  return Record{.kind = "train", .step = step, .time = 1000.5 + static_cast<double>(step)}.add("nll", 1.0 / 3);
}

std::vector<int64_t> steps(const std::filesystem::path& path) {
  std::vector<int64_t> found;
  for (const Record& record : read_metrics(path).records) {
    found.push_back(record.step);
  }
  return found;
}

TEST(Metrics, line) {
  const Record record = Record{.kind = "valid", .step = 40, .time = 12.5}
                            .add("zeta", 0.1)
                            .add("tokens", 4524868)
                            .add("alpha", -2.5e-7)
                            .add("text", "a \"b\"\n\xE2\x96\x81");
  EXPECT_EQ(to_json(record),
            "{\"kind\":\"valid\",\"step\":40,\"time\":12.5,\"zeta\":0.1,\"tokens\":4524868,\"alpha\":-2.5e-07,"
            "\"text\":\"a \\\"b\\\"\\n\xE2\x96\x81\"}");
}

TEST(Metrics, numbers_survive_exactly) {
  const double values[] = {1.0 / 3, 0.1F, 5e-324, 1.7976931348623157e308, -0.0, 9007199254740993.0, 123456789.0};
  for (const double value : values) {
    const auto record = parse_record(to_json(Record{.kind = "x"}.add("v", value)));
    ASSERT_TRUE(record);
    EXPECT_EQ(record->number("v"), value);
  }
}

TEST(Metrics, not_finite_numbers_are_texts_that_read_as_numbers) {
  const Record record = Record{.kind = "x", .time = 1}.add("a", kNan).add("b", kInfinity).add("c", -kInfinity);
  EXPECT_EQ(to_json(record),
            "{\"kind\":\"x\",\"step\":0,\"time\":1,\"a\":\"NaN\",\"b\":\"Infinity\",\"c\":\"-Infinity\"}");
  const auto read = parse_record(to_json(record));
  ASSERT_TRUE(read && read->number("a") && read->number("b"));
  EXPECT_TRUE(std::isnan(*read->number("a")));
  EXPECT_EQ(read->number("b"), kInfinity);
  EXPECT_EQ(read->number("c"), -kInfinity);
  EXPECT_FALSE(read->number("d"));
}

TEST(Metrics, texts) {
  const auto record = parse_record(to_json(Record{.kind = "x"}.add("t", "NaN").add("bad", "a\xFFz")));
  ASSERT_TRUE(record && record->text("t") && record->text("bad"));
  EXPECT_EQ(*record->text("t"), "NaN");
  EXPECT_EQ(*record->text("bad"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(record->text("none"), nullptr);
  EXPECT_FALSE(record->number("bad"));
}

TEST(Metrics, lines_that_are_no_records) {
  for (const char* line : {"", "{", "null", "[1]", "{}", "{\"kind\":\"a\",\"step\":1}",
                           "{\"kind\":1,\"step\":1,\"time\":1}", "{\"kind\":\"a\",\"step\":1.5,\"time\":1}",
                           "{\"kind\":\"a\",\"step\":\"1\",\"time\":1}", "{\"kind\":\"a\",\"step\":1,\"time\":1} x"}) {
    EXPECT_FALSE(parse_record(line)) << line;
  }
  EXPECT_FALSE(parse_record(std::string(100'000, '[')));
  const auto odd =
      parse_record("{\"time\":1,\"step\":3,\"kind\":\"a\",\"n\":null,\"o\":{},\"l\":[1],\"v\":2,\"b\":true}");
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->fields.size(), 1U);
  EXPECT_EQ(odd->number("v"), 2);
}

// A text with an escape is for the complete parser, which reads the rest of the line as the quick one does.
TEST(Metrics, both_parsers_read_the_same) {
  for (const char* fields :
       {"\"kind\":\"train\",\"step\":7,\"time\":1.5,\"nll\":-2.5e-7,\"bad\":\"NaN\",\"t\":\"\"",
        " \"time\" : 1e3 ,\t\"v\" : 0 , \"step\" : 4 , \"kind\" : \"probe\" ", "\"kind\":\"\",\"step\":1,\"time\":1",
        "\"kind\":\"x\",\"step\":1.5,\"time\":1", "\"kind\":\"x\",\"step\":1,\"time\":\"NaN\"",
        "\"kind\":\"x\",\"step\":1e300,\"time\":1"}) {
    const auto quick = parse_record(fmt::format("{{{}}}", fields));
    auto complete = parse_record(fmt::format("{{{},\"escaped\":\"\\n\"}}\r", fields));
    ASSERT_EQ(quick.has_value(), complete.has_value()) << fields;
    if (quick) {
      EXPECT_EQ(complete->fields.back().first, "escaped");
      complete->fields.pop_back();
      EXPECT_EQ(to_json(*quick), to_json(*complete));
    }
  }
}

TEST(Metrics, a_record_is_in_the_file_at_once) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics" / "0.jsonl";
  MetricsWriter writer(path);
  for (int64_t step = 1; step <= 3; ++step) {
    writer.write(train(step));
    EXPECT_EQ(steps(path).size(), static_cast<size_t>(step));
  }
  const testing::Metrics read = read_metrics(path);
  EXPECT_EQ(read.records[2].number("nll"), 1.0 / 3);
  EXPECT_EQ(read.records[2].time, 1003.5);
  EXPECT_EQ(read.records[2].kind, "train");
  EXPECT_EQ(read.skipped, 0);
}

TEST(Metrics, reader_skips_garbage) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "0.jsonl";
  append(path,
         to_json(train(1)) + "\n" + std::string(50, '\0') + "\ngarbage\n" + to_json(train(2)) + "\n{\"kind\":\"tr");
  const testing::Metrics read = read_metrics(path);
  ASSERT_EQ(read.records.size(), 2U);
  EXPECT_EQ(read.records[1].step, 2);
  EXPECT_EQ(read.skipped, 3);
  EXPECT_TRUE(read_metrics(directory.path() / "missing").records.empty());
}

TEST(Metrics, resume_cuts_later_steps_and_a_torn_line) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "0.jsonl";
  {
    MetricsWriter writer(path);
    for (int64_t step : {10, 20, 20, 30, 40}) {
      writer.write(train(step));
    }
  }
  append(path, "{\"kind\":\"train\",\"step\":5");
  {
    MetricsWriter writer(path, 20);
    EXPECT_EQ(steps(path), (std::vector<int64_t>{10, 20, 20}));
    writer.write(train(30));
  }
  EXPECT_EQ(steps(path), (std::vector<int64_t>{10, 20, 20, 30}));
  EXPECT_EQ(read_metrics(path).skipped, 0);
}

TEST(Metrics, opening_cuts_only_a_torn_line) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "0.jsonl";
  const std::string whole = to_json(train(1)) + "\nodd line\n" + to_json(train(2)) + "\n";
  append(path, whole + to_json(train(3)));  // complete but for its end: not known to be whole
  const MetricsWriter writer(path);
  EXPECT_EQ(read_all(path), whole);
}

TEST(Metrics, starting_over_cuts_everything) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "0.jsonl";
  MetricsWriter writer(path);
  writer.write(train(0));
  writer.write(train(1));
  writer.cut_after(-1);
  EXPECT_EQ(std::filesystem::file_size(path), 0U);
  writer.write(train(1));
  EXPECT_EQ(steps(path), std::vector<int64_t>{1});
}

TEST(Metrics, says_where_it_cannot_write) {
  try {
    const MetricsWriter writer("/proc/no-such-directory/0.jsonl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/proc/no-such-directory"), std::string::npos);
  }
}

// On a full disk the file keeps whole records only, one warning is given, and writing works again once there is room.
TEST(Metrics, full_disk) {
  const testing::TemporaryDirectory directory;
  if (mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs is not allowed here";
  }
  const auto path = directory.path() / "0.jsonl";
  {
    const auto filler = directory.path() / "filler";
    MetricsWriter writer(path);
    writer.write(train(1));
    append(filler, std::string(50'000, 'x'));
    ::testing::internal::CaptureStderr();
    for (int64_t step = 2; step <= 2000; ++step) {
      writer.write(train(step));
    }
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("No space left"), std::string::npos) << said;
    EXPECT_EQ(said.find("warning"), said.rfind("warning")) << "one warning: " << said;
    const size_t kept = steps(path).size();
    EXPECT_GT(kept, 1U);
    EXPECT_LT(kept, 2000U);
    EXPECT_EQ(read_metrics(path).skipped, 0);
    std::filesystem::remove(filler);
    writer.write(train(2001));
    EXPECT_EQ(steps(path).back(), 2001);
    EXPECT_EQ(read_metrics(path).skipped, 0);
  }
  EXPECT_EQ(umount(directory.path().c_str()), 0);
}

}  // namespace
}  // namespace tandem::observe
