#include "store/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "compare.h"
#include "core/file.h"
#include "temporary_directory.h"

namespace tandem::store {
namespace {

using testing::message_of;
using testing::TemporaryDirectory;

void write_raw(const std::filesystem::path& path, const std::string& header, const std::string& data,
               uint64_t claimed = UINT64_MAX) {
  const uint64_t bytes = claimed == UINT64_MAX ? header.size() : claimed;
  std::string content(8, '\0');
  std::memcpy(content.data(), &bytes, 8);
  write_file(path, content + header + data);
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const TemporaryDirectory directory(testing::memory_directory());
  const auto path = directory / "a.safetensors";
  const std::vector<float> matrix = {1, 2, 3, 4, 5, -6.5F};
  const std::vector<double> wide = {3.25, -1};
  const std::vector<int64_t> integers = {-9, 1LL << 60};
  const std::vector<uint16_t> half = {0x3F80, 0x4000, 0xC000};
  const std::vector<TensorToWrite> tensors = {
      {"z.matrix", "F32", {2, 3}, matrix.data()}, {"b\"ä", "BF16", {3}, half.data()},
      {"wide", "F64", {2}, wide.data()},          {"integers", "I64", {2, 1}, integers.data()},
      {"scalar", "F32", {}, matrix.data() + 5},   {"none", "F32", {0, 7}, nullptr}};
  FileWriter file(path);
  write_safetensors(file, tensors);
  file.finish();
  EXPECT_EQ(file.size(), safetensors_size(tensors));

  const SafetensorsReader reader(path);
  ASSERT_EQ(reader.tensors().size(), 6u);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.tensors()[0].name, "integers");  // wider types first, then by name
  EXPECT_EQ(reader.tensors()[1].name, "wide");
  EXPECT_EQ(reader.tensors().back().name, "b\"ä");
  std::vector<float> read_matrix(6);
  reader.read(*reader.find("z.matrix"), read_matrix.data());
  EXPECT_EQ(read_matrix, matrix);
  EXPECT_EQ(reader.find("z.matrix")->shape, (std::vector<int64_t>{2, 3}));
  std::vector<int64_t> read_integers(2);
  reader.read(*reader.find("integers"), read_integers.data());
  EXPECT_EQ(read_integers, integers);
  float scalar = 0;
  reader.read(*reader.find("scalar"), &scalar);
  EXPECT_EQ(scalar, -6.5F);
  EXPECT_EQ(reader.find("none")->elements(), 0);
  EXPECT_EQ(reader.find("nothing"), nullptr);
}

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Safetensors, RefusesHostileHeaders) {
  const TemporaryDirectory directory(testing::memory_directory());
  const auto path = directory / "bad.safetensors";
  const auto tensor = [](const std::string& name, const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
  };
  const std::string data(8, 'x');
  struct Case {
    std::string header, data, expected;
    uint64_t claimed = UINT64_MAX;
  };
  const std::vector<Case> cases = {
      {"{}", "", "header claims", 1ULL << 40},
      {"{}", "", "header claims", UINT64_MAX - 3},
      {"{}", "", "header claims", 3},
      {"", "", "does not begin"},
      {"[]", "", "does not begin"},
      {"{", "", "parse error"},
      {"{\"a\xFF\":1}", "", "UTF-8"},
      {"{}", data, "end at byte 0 of 8"},
      {"{" + tensor("a", "F32", "[2]", "[0,8]") + "}", "1234", "leave the data of 4 bytes"},
      {"{" + tensor("a", "F32", "[2]", "[8,0]") + "}", data, "leave the data"},
      {"{" + tensor("a", "F32", "[1]", "[0,8]") + "}", data, "needs 4 bytes but its offsets span 8"},
      {"{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", data, "not a count"},
      {"{" + tensor("a", "F32", "[2]", "[-8,0]") + "}", data, "not a count"},
      {"{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", data, "not a count"},
      {"{" + tensor("a", "F32", "[" + nested(400000) + "]", "[0,8]") + "}", data, "nested more than 32 deep"},
      {"{" + tensor("a", "F32", "[1e400]", "[0,8]") + "}", data, "overflow"},
      {"{" + tensor("a", "F32", "[[[1]]]", "[0,8]") + "}", data, "a JSON array, not a count"},
      {"{" + tensor("a", "F32", "[4294967296,4294967296,2]", "[0,8]") + "}", data, "overflows"},
      {"{" + tensor("a", "F32", "[18446744073709551615]", "[0,8]") + "}", data, "overflows"},
      {"{" + tensor("a", "F32", "[4611686018427387904]", "[0,8]") + "}", data, "overflows"},
      {"{" + tensor("a", "F32", "[1000000000000]", "[0,8]") + "}", data, "needs 4000000000000 bytes"},
      {"{" + tensor("a", "F33", "[2]", "[0,8]") + "}", data, "dtype 'F33'"},
      {"{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[2,6]") + "}", data, "'b' begins"},
      {"{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[0,4]") + "}", data, "begins"},
      {"{" + tensor("a", "I8", "[2]", "[0,2]") + "," + tensor("b", "F32", "[1]", "[4,8]") + "}", data, "begins"},
      {"{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("a", "F32", "[1]", "[4,8]") + "}", data, "twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data, "twice"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", data, "exactly"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", data, "wrong type"},
      {R"({"a":{"dtype":3,"shape":[2],"data_offsets":[0,8]}})", data, "wrong type"},
      {R"({"a":[]})", data, "exactly"},
      {R"({"__metadata__":{"a":1}})", "", "not a string"},
      {R"({"__metadata__":[]})", "", "not an object"},
      {R"({"a":)" + std::string(200000, '['), "", "nested more than 32 deep"},
  };
  for (const Case& bad : cases) {
    write_raw(path, bad.header, bad.data, bad.claimed);
    const std::string message = message_of([&] { SafetensorsReader reader(path); });
    EXPECT_NE(message.find(bad.expected), std::string::npos) << bad.header.substr(0, 100) << " -> " << message;
    EXPECT_NE(message.find("bad.safetensors"), std::string::npos) << message;
  }
  write_file(path, "1234");
  EXPECT_NE(message_of([&] { SafetensorsReader reader(path); }).find("too few"), std::string::npos);
  EXPECT_NE(message_of([&] { SafetensorsReader reader(directory.path()); }), "");
  EXPECT_NE(message_of([&] { SafetensorsReader reader(directory / "missing"); }), "");
}

// Cuts and flips of a real file: an error, or a header that still describes the bytes that are there; never a crash.
TEST(Safetensors, SurvivesDamage) {
  const TemporaryDirectory directory(testing::memory_directory());
  const auto path = directory / "a.safetensors";
  const std::vector<float> values = {1, 2, 3, 4};
  FileWriter file(path);
  write_safetensors(file, {{"a", "F32", {2}, values.data()}, {"b", "F32", {2}, values.data() + 2}});
  file.finish();
  const std::string good = read_file(path);
  for (size_t length = 0; length < good.size(); ++length) {
    std::ofstream(path, std::ios::binary) << good.substr(0, length);
    EXPECT_NE(message_of([&] { SafetensorsReader reader(path); }), "") << "cut to " << length;
  }
  for (size_t bit = 0; bit < (good.size() - 16) * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    std::ofstream(path, std::ios::binary) << bad;
    const std::string message = message_of([&] {
      const SafetensorsReader reader(path);
      for (const TensorInfo& tensor : reader.tensors()) {
        std::vector<char> bytes(tensor.end - tensor.begin);
        reader.read(tensor, bytes.data());
      }
    });
    if (bit < 64) {
      EXPECT_NE(message, "") << "bit " << bit << " of the header's length";
    }
  }
}

std::string python() { return std::string(TANDEM_SOURCE_DIR) + "/.venv/bin/python"; }

bool run_python(const std::string& script) {
  return std::system(fmt::format("{} -c '{}'", python(), script).c_str()) == 0;
}

TEST(Safetensors, AgreesWithTheReferencePackage) {
  if (!std::filesystem::exists(python()) || !run_python("import safetensors.numpy, numpy")) {
    GTEST_SKIP() << "the Python packages safetensors and numpy are not in .venv";
  }
  const TemporaryDirectory directory(testing::memory_directory());
  const auto ours = directory / "ours.safetensors", theirs = directory / "theirs.safetensors";
  std::vector<float> matrix(35);
  testing::fill_random(std::span(matrix), 3);
  const std::vector<int32_t> integers = {-1, 2, 3};
  const std::vector<double> wide = {0.1, -7};
  FileWriter file(ours);
  write_safetensors(file, {{"matrix", "F32", {5, 7}, matrix.data()},
                           {"integers", "I32", {3}, integers.data()},
                           {"wide", "F64", {2, 1}, wide.data()}});
  file.finish();
  const std::string script =
      "from safetensors.numpy import load_file, save_file\n"
      "t = load_file(\"{}\")\n"
      "assert t[\"integers\"].tolist() == [-1, 2, 3] and t[\"wide\"].tolist() == [[0.1], [-7.0]], t\n"
      "assert t[\"matrix\"].shape == (5, 7)\n"
      "save_file(t, \"{}\", metadata={{\"format\": \"pt\"}})\n";
  ASSERT_TRUE(run_python(fmt::format(fmt::runtime(script), ours.string(), theirs.string())));
  const SafetensorsReader reader(theirs);
  std::vector<float> read(35);
  reader.read(*reader.find("matrix"), read.data());
  EXPECT_EQ(read, matrix);
  const SafetensorsReader own(ours);
  ASSERT_EQ(reader.tensors().size(), own.tensors().size());
  for (size_t i = 0; i < own.tensors().size(); ++i) {  // the same order of tensors as the reference writer's
    EXPECT_EQ(reader.tensors()[i].name, own.tensors()[i].name);
    EXPECT_EQ(reader.tensors()[i].begin, own.tensors()[i].begin);
  }
}

}  // namespace
}  // namespace tandem::store
