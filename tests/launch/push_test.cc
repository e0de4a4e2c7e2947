// Hosts that have their own directory in place of this one's program, config and data.
#include <fmt/core.h>

#include "launch/launch.h"
#include "launched.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

class PushTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0 || run_command("unshare -m true").code != 0) {
      GTEST_SKIP() << "hosts with files of their own need root and mount namespaces";
    }
    fs::create_directories(here() + "/data/part");
    fs::create_directories(here() + "/bin");
    fs::copy(TANDEM_WORKER, here() + "/bin/tandem");
    std::ofstream(here() + "/config.toml") << "x = 1\n";
    std::ofstream(here() + "/data/corpus") << std::string(3000000, 'c');
    std::ofstream(here() + "/data/part/it's here") << "small\n";
    write_agent("");
  }

  std::string here() const { return (directory_ / "here").string(); }
  std::string there(const std::string& host) const { return (directory_ / host).string(); }

  // On host x, the directory `here` is what others see as `x`.
  void write_agent(const std::string& also) const {
    std::ofstream(agent()) << "#!/bin/sh\nmkdir -p " << (directory_ / "").string()
                           << "$1\nexport H=$1 C=\"$2\"\nexec unshare -m sh -c 'mount --bind "
                           << (directory_ / "").string() << "$H " << here() << " && " << also
                           << " exec sh -c \"$C\"'\n";
    fs::permissions(agent(), fs::perms::owner_all);
  }
  std::string agent() const { return (directory_ / "agent").string(); }

  // The output.
  std::string push() const {
    Launched pushed(
        {here() + "/bin/tandem", "push", "x,y", agent(), here(), here() + "/config.toml", here() + "/data"});
    EXPECT_EQ(pushed.wait(milliseconds(60000)), 0) << pushed.err();
    return pushed.err();
  }

  void expect_launch_works() const {
    Launched launched({here() + "/bin/tandem", "launch", "x,y", agent(), "0", here(), "work", "steps=3"});
    EXPECT_EQ(launched.wait(milliseconds(30000)), 0) << launched.all();
    EXPECT_TRUE(contains(launched.out(), "[rank 1 on y] rank 1 is done")) << launched.out();
  }

  TemporaryDirectory directory_;
};

TEST_F(PushTest, BringsWhatIsMissingAndNothingElse) {
  const std::string first = push();
  for (const char* host : {"x", "y"}) {
    for (const char* file : {"/bin/tandem", "/config.toml", "/data/corpus", "/data/part/it's here"}) {
      EXPECT_TRUE(contains(first, fmt::format("host {}: sending {}{} (", host, here(), file))) << first;
      EXPECT_EQ(launch::sha256_file(there(host) + file), launch::sha256_file(here() + file)) << file;
    }
  }
  EXPECT_EQ(push(), "");
  std::ofstream(there("y") + "/data/corpus", std::ios::app) << "x";
  const std::string again = push();
  EXPECT_TRUE(contains(again, "host y: sending " + here() + "/data/corpus (3.0 MB)")) << again;
  EXPECT_FALSE(contains(again, "host x")) << again;
  EXPECT_EQ(launch::sha256_file(there("y") + "/data/corpus"), launch::sha256_file(here() + "/data/corpus"));
  expect_launch_works();
}

// What only its owner may read stays so, and a link that somebody has put there is not followed.
TEST_F(PushTest, KeepsModesAndFollowsNoLinks) {
  fs::permissions(here() + "/config.toml", fs::perms(0600));
  fs::permissions(here() + "/data/corpus", fs::perms(0440));
  fs::create_directories(there("x"));
  std::ofstream(directory_ / "victim") << "untouched";
  fs::create_symlink(directory_ / "victim", there("x") + "/config.toml.push");
  fs::create_symlink(directory_ / "victim", there("x") + "/config.toml");
  push();
  EXPECT_EQ(read_text(directory_ / "victim"), "untouched");
  EXPECT_EQ(fs::symlink_status(there("x") + "/config.toml").type(), fs::file_type::regular);
  for (const char* file : {"/config.toml", "/data/corpus", "/bin/tandem"}) {
    EXPECT_EQ(fs::status(there("x") + file).permissions(), fs::status(here() + file).permissions()) << file;
  }
  EXPECT_EQ(run_command("find " + there("x") + " -name '.push-*'").output, "");

  for (const char* name : {"/data/back\\slash", "/data/line\nbreak"}) {
    std::ofstream(here() + name) << "x";
    Launched refused({here() + "/bin/tandem", "push", "x", agent(), here(), here() + "/data"});
    EXPECT_EQ(refused.wait(milliseconds(60000)), 1);
    EXPECT_TRUE(contains(refused.err(), "has a backslash or a line break in its name")) << refused.err();
    fs::remove(here() + name);
  }
}

// A host without one of the libraries gets them all.
TEST_F(PushTest, BringsLibrariesWhereTheyAreMissing) {
  const std::string library =
      run_command(fmt::format("ldd {} | awk '/libgloo/ {{print $3}}' | xargs readlink -f", TANDEM_WORKER)).output;
  ASSERT_TRUE(contains(library, "libgloo"));
  write_agent("mount --bind /dev/null " + library.substr(0, library.find('\n')) + " &&");
  const std::string pushed = push();
  EXPECT_TRUE(contains(pushed, "host y cannot run the program (")) << pushed;
  EXPECT_TRUE(contains(pushed, "sending " + here() + "/bin/tandem.lib/libgloo.so")) << pushed;
  EXPECT_EQ(push(), "");
  expect_launch_works();
}

TEST_F(PushTest, AHostWithoutRoomIsNamed) {
  write_agent("mount -t tmpfs -o size=1m none " + here() + " &&");
  Launched pushed({here() + "/bin/tandem", "push", "x", agent(), here(), here() + "/data"});
  EXPECT_EQ(pushed.wait(milliseconds(60000)), 1);
  EXPECT_TRUE(contains(pushed.err(), "tandem: host x: `mkdir -p ")) << pushed.err();
  EXPECT_TRUE(contains(pushed.err(), "No space left on device")) << pushed.err();
}

TEST(Sha256, OfKnownText) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "abc") << "abc";
  EXPECT_EQ(launch::sha256_file((directory / "abc").string()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace tandem::testing
