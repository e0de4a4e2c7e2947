#include "store/run_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/file.h"
#include "temporary_directory.h"

namespace tandem::store {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryDirectory;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(RunDirectory, MakesItsLayoutAndKeepsASecondTrainerOut) {
  const TemporaryDirectory base;
  const fs::path root = base / "a/b";
  {
    const RunDirectory run(root);
    EXPECT_TRUE(fs::is_directory(run.checkpoints()) && fs::is_directory(run.metrics()) &&
                fs::is_directory(run.events()));
    const std::string message = message_of([&] { RunDirectory second(root); });
    EXPECT_TRUE(contains(message, "is in use by process " + std::to_string(::getpid()))) << message;
    EXPECT_TRUE(contains(message, root.string())) << message;
  }
  EXPECT_EQ(message_of([&] { RunDirectory again(root); }), "");
}

TEST(RunDirectory, RefusesWhatIsNoRunDirectory) {
  const TemporaryDirectory base;
  EXPECT_NE(message_of([] { RunDirectory run(""); }), "");
  std::ofstream(base / "file") << "x";
  EXPECT_TRUE(contains(message_of([&] { RunDirectory run(base / "file"); }), "is a file"));
  EXPECT_TRUE(contains(message_of([&] { RunDirectory run(base.path()); }), "not a run directory"));
  EXPECT_TRUE(contains(message_of([&] { RunDirectory run(base / "file/below"); }), "cannot create"));
  if (::geteuid() != 0) {
    fs::permissions(base.path(), fs::perms::owner_read | fs::perms::owner_exec);
    EXPECT_TRUE(contains(message_of([&] { RunDirectory run(base / "new"); }), "cannot create"));
    fs::permissions(base.path(), fs::perms::owner_all);
  }
}

TEST(RunDirectory, StartsOverWithoutTouchingOtherFiles) {
  const TemporaryDirectory base;
  RunDirectory run(base / "run");
  fs::create_directories(run.checkpoints() / "step-00000001");
  fs::create_directory_symlink("checkpoints/step-00000001", run.root() / "latest");
  std::ofstream(run.log()) << "old";
  std::ofstream(run.metrics() / "0.jsonl") << "old";
  std::ofstream(run.root() / "notes.txt") << "mine";
  run.clear();
  EXPECT_TRUE(fs::is_empty(run.checkpoints()) && fs::is_empty(run.metrics()));
  EXPECT_FALSE(fs::exists(fs::symlink_status(run.root() / "latest")) || fs::exists(run.log()));
  EXPECT_EQ(read_file(run.root() / "notes.txt"), "mine");
}

}  // namespace
}  // namespace tandem::store
