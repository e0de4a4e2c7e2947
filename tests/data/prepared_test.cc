#include "data/prepared.h"

#include "core/file.h"
#include "data/prepare.h"
#include "data/scratch.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::message_of;

class PreparedDirectory : public testing::Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += "line " + std::to_string(i * 37 % 1000) + " of some text\n";
    }
    write_file(at("a"), text);
    write_file(at("b"), text);
    PrepareConfig config;
    config.source = {at("a")};
    config.target = {at("b")};
    config.valid_size = 10;
    config.training.vocab_size = 60;
    config.out = at("data");
    prepare(config);
  }
};

TEST_F(PreparedDirectory, DamageIsFoundAndNamed) {
  for (const char* name : {"train.corpus", "joint.model", "valid.source.txt", "valid.target.txt", "manifest.json"}) {
    const fs::path path = directory_ / "data" / name;
    const std::string whole = read_file(path);
    for (const size_t at_byte : {size_t{0}, whole.size() / 2, whole.size() - 1}) {
      std::string damaged = whole;
      damaged[at_byte] = static_cast<char>(damaged[at_byte] ^ 4);
      write_file(path, damaged);
      std::string error = message_of([&] { Prepared::open(at("data")); });
      EXPECT_TRUE(contains(error, path.string() + " is damaged")) << error;
    }
    write_file(path, whole.substr(0, whole.size() - 1));
    EXPECT_TRUE(contains(message_of([&] { Prepared::open(at("data")); }), path.string() + " is damaged"));
    fs::remove(path);
    EXPECT_TRUE(contains(message_of([&] { Prepared::open(at("data")); }), name));
    write_file(path, whole);
    EXPECT_EQ(Prepared::open(at("data")).valid.size(), 10U);
  }
}

TEST_F(PreparedDirectory, OtherDirectories) {
  EXPECT_TRUE(
      contains(message_of([&] { Prepared::open(at("none")); }), "is not a directory; make one with tandem prepare"));
  EXPECT_TRUE(contains(message_of([&] { Prepared::open(directory_); }), "is not a prepared directory"));
}

TEST_F(PreparedDirectory, StatisticsAreNotNeeded) {
  const std::string fingerprint = Prepared::open(at("data")).fingerprint;
  fs::remove(at("data/stats.json"));
  EXPECT_EQ(Prepared::open(at("data")).fingerprint, fingerprint);
}

}  // namespace
}  // namespace tandem::data
