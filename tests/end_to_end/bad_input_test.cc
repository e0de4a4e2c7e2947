// Bad input of every kind: one clear sentence, a non-zero exit, no partial output, no crash.
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include "core/file.h"
#include "core/manifest.h"
#include "end_to_end/program.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// The program fails in an orderly way and its message holds every one of the words.
void expect_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& words,
                    const std::string& input = "") {
  const Result result = run(arguments, input);
  std::string command;
  for (const std::string& argument : arguments) {
    command += argument + " ";
  }
  EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 2) << command << "\nexit " << result.exit_code << "\n"
                                                              << result.err;
  for (const std::string& word : words) {
    EXPECT_NE(result.err.find(word), std::string::npos) << command << "\nno '" << word << "' in: " << result.err;
  }
  EXPECT_EQ(result.out, "") << command;
}

class BadInput : public ::testing::Test {
 protected:
  void SetUp() override { make_small_corpus(directory_); }

  std::vector<std::string> prepare(const std::string& source, const std::string& target) const {
    return {"prepare", "--source", directory_.at(source), "--target", directory_.at(target), "--vocab-size",
            "80",      "--out",    directory_.at("out")};
  }

  TemporaryDirectory directory_;
};

TEST(Program, NamesACommandThatThereIsNot) {
  expect_refused({"trian", "config.toml"}, {"trian", "did you mean 'train'?", "--help"});
  expect_refused({"something", "config.toml"}, {"no command 'something'; --help"});
  expect_refused({""}, {"no command ''; --help"});
}

TEST_F(BadInput, Prepare) {
  write_text(directory_ / "short.de", "eins\nzwei\n");
  write_text(directory_ / "empty", "");
  write_text(directory_ / "binary", std::string("ab\0cd\n\0\n", 8));
  write_text(directory_ / "tiny.en", "a b\nc d\n");
  write_text(directory_ / "tiny.de", "e f\ng h\n");
  fs::create_directory(directory_ / "folder");
  expect_refused(prepare("train.en", "short.de"), {"1500", "2", "train.en", "short.de"});
  expect_refused(prepare("missing.en", "train.de"), {"missing.en"});
  expect_refused(prepare("empty", "empty"), {"empty"});
  expect_refused(prepare("binary", "binary"), {"binary"});
  expect_refused(prepare("folder", "train.de"), {"folder", "directory"});
  std::vector<std::string> large = prepare("tiny.en", "tiny.de");
  large[6] = "32768";
  expect_refused(large, {"32768"});
  std::vector<std::string> both = prepare("train.en", "train.de");
  both.insert(both.end(), {"--tokenizer", directory_.at("data/joint.model")});
  expect_refused(both, {"--tokenizer", "--vocab-size"});
  EXPECT_FALSE(fs::exists(directory_ / "out"));
  for (const auto& entry : fs::directory_iterator(directory_ / "")) {
    EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos) << entry.path();
  }
  if (geteuid() != 0) {
    fs::permissions(directory_ / "tiny.en", fs::perms::none);
    expect_refused(prepare("tiny.en", "tiny.de"), {"tiny.en"});
  }
}

TEST_F(BadInput, ConfigListsEveryMistakeAndTheNearestKey) {
  expect_refused(train_arguments(directory_, "run", 10, {"bacth.tokens=5", "model.heads=3", "label_smoothing=7"}),
                 {"bacth.tokens", "batch.tokens", "heads", "label_smoothing"});
  expect_refused({"train", directory_.at("missing.toml")}, {"missing.toml"});
  write_text(directory_ / "broken.toml", "a = [1,\n");
  expect_refused({"train", directory_.at("broken.toml")}, {"broken.toml"});
  expect_refused({"train", directory_.at("config.toml"), "run=" + directory_.at("run")}, {"data"});
  EXPECT_FALSE(fs::exists(directory_ / "run"));
}

TEST_F(BadInput, DamagedCorpusTokenizerAndCheckpointAreNamed) {
  ASSERT_EQ(run(train_arguments(directory_, "run", 5)).exit_code, 0);
  int files = 0;
  for (const std::string part : {"data", "run/latest/"}) {
    for (const auto& entry : fs::directory_iterator(directory_ / part)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file() || name == "stats.json" || fs::file_size(entry.path()) == 0) {
        continue;
      }
      ++files;
      const std::string good = read_text(entry.path());
      std::string flipped = good;
      flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
      for (const std::string& bad : {flipped, good.substr(0, good.size() / 2)}) {
        write_text(entry.path(), bad);
        if (part == "data") {
          expect_refused(train_arguments(directory_, "other", 5), {name});
        } else {
          expect_refused({"translate", "--model", directory_.at("run")}, {name}, "red cat\n");
        }
      }
      write_text(entry.path(), good);
    }
  }
  EXPECT_GE(files, 8);
  EXPECT_EQ(run({"translate", "--model", directory_.at("run")}, "red cat\n").exit_code, 0) << "all is whole again";
}

// The config of an intact checkpoint asks for far more memory than the file of weights has bytes.
TEST_F(BadInput, AModelThatIsLargerThanItsFileTakesNoMemory) {
  ASSERT_EQ(run(train_arguments(directory_, "run", 5)).exit_code, 0);
  const fs::path model = fs::canonical(directory_ / "run/latest");
  std::string config = read_text(model / "config.toml");
  const size_t begin = config.find("\nfeed_forward = ") + 1;
  ASSERT_NE(begin, 0U);
  config.replace(begin, config.find('\n', begin) - begin, "feed_forward = 262144");
  write_text(model / "config.toml", config);
  Manifest manifest = read_manifest(model);
  for (ManifestFile& file : manifest.files) {
    if (file.name == "config.toml") {
      file.bytes = config.size();
      file.checksum = checksum(config);
    }
  }
  write_text(model / "manifest.json", to_json(manifest));
  expect_refused({"translate", "--model", model.string()}, {"a model of its config has", "but model.safetensors has"},
                 "red cat\n");
}

TEST_F(BadInput, ModelPaths) {
  expect_refused({"translate", "--model", directory_.at("nowhere")}, {"nowhere"}, "a\n");
  expect_refused({"translate", "--model", directory_.at("data")}, {"data"}, "a\n");
  expect_refused({"inspect", directory_.at("nowhere")}, {"nowhere"});
  expect_refused({"score", "--hyp", directory_.at("dev.en"), "--ref", directory_.at("train.en")}, {"20", "1500"});
}

// A packed file of some kB that would fill the memory.
TEST_F(BadInput, BillionsOfLines) {
  const std::string file = directory_.at("lines.gz");
  ASSERT_EQ(std::system(("head -c 10000001 /dev/zero | tr '\\0' '\\n' | gzip > " + file).c_str()), 0);
  expect_refused({"score", "--hyp", file, "--ref", file}, {"lines.gz has more than 10000000 lines"});
}

TEST_F(BadInput, TranslateKeepsLinesWhateverTheyHold) {
  ASSERT_EQ(run(train_arguments(directory_, "run", 20)).exit_code, 0);
  std::string words;
  for (int i = 0; i < 10000; ++i) {
    words += "cat ";
  }
  const std::string input =
      "red cat\n\n   \n" + words + "\nbad \xff\xfe bytes\n\xF0\x9F\x90\x88\nlast line without end";
  const Result result = run({"translate", "--model", directory_.at("run"), "--beam", "2"}, input);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 7) << result.out.substr(0, 500);
  const size_t first = result.out.find('\n');
  EXPECT_EQ(result.out.substr(first, 3), "\n\n\n") << "an empty line gives an empty line";
  EXPECT_NE(result.err.find("line 4"), std::string::npos) << "the long line is named: " << result.err;
}

TEST_F(BadInput, FullDiskAndUnwritableDirectory) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can mount the small disk that this test fills";
  }
  fs::create_directory(directory_ / "disk");
  if (mount("tmpfs", directory_.at("disk").c_str(), "tmpfs", 0, "size=400k") != 0) {
    GTEST_SKIP() << "a tmpfs cannot be mounted here";
  }
  std::vector<std::string> arguments = prepare("train.en", "train.de");
  arguments.back() = directory_.at("disk/data");
  write_text(directory_ / "disk/filler", std::string(380 * 1024, 'x'));
  expect_refused(arguments, {"disk"});
  EXPECT_FALSE(fs::exists(directory_ / "disk/data"));
  fs::remove(directory_ / "disk/filler");

  umount(directory_.at("disk").c_str());

  expect_refused(train_arguments(directory_, "config.toml", 5), {"config.toml"});
  expect_refused({"train", directory_.at("config.toml"), "data=" + directory_.at("data"), "run=/proc/run"},
                 {"/proc/run"});
}

// A small disk, and the bytes of a checkpoint that is written to it.
class SmallDisk : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    if (geteuid() != 0) {
      GTEST_SKIP() << "only root can mount the small disk that this test fills";
    }
    ASSERT_EQ(run(train_arguments(directory_, "run", 2)).exit_code, 0);
    for (const auto& file : fs::recursive_directory_iterator(directory_ / "run/checkpoints")) {
      checkpoint_ += file.is_regular_file() ? file.file_size() : 0;
    }
    ASSERT_GT(checkpoint_, 10000U);
    fs::create_directory(directory_ / "disk");
    const std::string size = "size=" + std::to_string(4 * checkpoint_ + (1 << 20));
    if (mount("tmpfs", directory_.at("disk").c_str(), "tmpfs", 0, size.c_str()) != 0) {
      GTEST_SKIP() << "a tmpfs cannot be mounted here";
    }
  }
  void TearDown() override { umount(directory_.at("disk").c_str()); }

  // Leaves room for about so many checkpoints.
  void fill(double checkpoints) {
    const auto room = static_cast<double>(fs::space(directory_ / "disk").available);
    write_text(directory_ / "disk/filler",
               std::string(static_cast<size_t>(room - checkpoints * static_cast<double>(checkpoint_)), 'x'));
  }

  uintmax_t checkpoint_ = 0;
};

TEST_F(SmallDisk, WithoutRoomForOneCheckpointTheRunEnds) {
  fill(0.7);
  const Result full = run(train_arguments(directory_, "disk/run", 100000, {"checkpoint.every_steps=5"}));
  EXPECT_EQ(full.exit_code, 1) << full.err;
  EXPECT_NE(full.err.find("free some space"), std::string::npos) << full.err;
}

TEST_F(SmallDisk, ARunGoesOnWithItsOlderCheckpoint) {
  fill(1.7);
  const Result full =
      run(train_arguments(directory_, "disk/run", 60, {"checkpoint.every_steps=5", "checkpoint.keep_last=1"}));
  EXPECT_EQ(full.exit_code, 1) << "the last checkpoint could not be written: " << full.err;
  EXPECT_NE(full.err.find("free some space; training goes on, and it is tried again"), std::string::npos) << full.err;
  EXPECT_EQ(fs::read_symlink(directory_ / "disk/run/latest").filename(), "step-00000005");
  EXPECT_EQ(run({"inspect", directory_.at("disk/run")}).exit_code, 0);
  EXPECT_EQ(train_records(directory_ / "disk/run", "loss").rbegin()->first, 60) << "training went on to its last step";
}

TEST_F(SmallDisk, WhenThereIsRoomAgainTheRunIsSaved) {
  fill(1.7);
  const fs::path log = directory_ / "log";
  const pid_t process = start(train_arguments(directory_, "disk/run", 100000, {"checkpoint.every_steps=5"}), log);
  EXPECT_TRUE(appears(log, "training goes on, and it is tried again")) << read_text(log);
  EXPECT_TRUE(appears(log, "step 40/")) << read_text(log);
  EXPECT_EQ(fs::read_symlink(directory_ / "disk/run/latest").filename(), "step-00000005");
  fs::remove(directory_ / "disk/filler");
  kill(process, SIGTERM);
  EXPECT_EQ(wait_for(process), 128 + SIGTERM) << read_text(log);
  const std::string newest = fs::read_symlink(directory_ / "disk/run/latest").filename();
  EXPECT_GE(std::stoi(newest.substr(5)), 40);
  EXPECT_NE(read_text(log).find("at step " + std::to_string(std::stoi(newest.substr(5))) + ";"), std::string::npos);
  EXPECT_NE(read_text(directory_ / "disk/run/metrics/0.jsonl").find("checkpoint failed"), std::string::npos);
}

// What --start-over would remove stays until everything that was asked for is there, and a run that cannot begin leaves
// no directory behind.
TEST_F(BadInput, AStartThatFailsChangesNothing) {
  ASSERT_EQ(run(train_arguments(directory_, "run", 4, {"checkpoint.every_steps=2"})).exit_code, 0);
  const std::string before = read_text(directory_ / "run/latest/model.safetensors");
  for (const std::string bad : {"init=nope", "algorithms=nope", "batch.tokens=1", "device=cuda:99"}) {
    expect_refused(train_arguments(directory_, "run", 4, {"--start-over", bad}), {});
    EXPECT_EQ(read_text(directory_ / "run/latest/model.safetensors"), before) << bad;
    EXPECT_TRUE(fs::exists(directory_ / "run/train.log")) << bad;
    expect_refused(train_arguments(directory_, "new", 4, {bad}), {});
    EXPECT_FALSE(fs::exists(directory_ / "new")) << bad;
  }
  EXPECT_EQ(run(train_arguments(directory_, "run", 4, {"--start-over", "init=" + directory_.at("run")})).exit_code, 0);
  expect_refused(train_arguments(directory_, "caf\xE9", 4), {"UTF-8"});
  expect_refused(train_arguments(directory_, "new", 4, {"dist.engine=carrier"}), {"dist.engine", "nccl"});
}

TEST_F(BadInput, ADamagedStateIsLikeAnyOtherDamage) {
  ASSERT_EQ(run(train_arguments(directory_, "run", 4, {"checkpoint.every_steps=2"})).exit_code, 0);
  write_text(directory_ / "run/latest/state.json", "{");
  const Result on = run(train_arguments(directory_, "run", 6));
  EXPECT_EQ(on.exit_code, 0) << on.err;
  EXPECT_NE(on.err.find("using the older checkpoint"), std::string::npos) << on.err;
}

TEST_F(BadInput, WeightsOfOtherPiecesAreNoBeginning) {
  ASSERT_EQ(run(train_arguments(directory_, "run", 2)).exit_code, 0);
  ASSERT_EQ(run({"prepare", "--source", directory_.at("dev.en"), "--target", directory_.at("dev.de"), "--vocab-size",
                 "80", "--out", directory_.at("other")})
                .exit_code,
            0);
  ASSERT_NE(read_text(directory_ / "other/joint.model"), read_text(directory_ / "data/joint.model"));
  std::vector<std::string> arguments = train_arguments(directory_, "next", 2, {"init=" + directory_.at("run")});
  EXPECT_EQ(run(arguments).exit_code, 0);
  arguments[2] = "data=" + directory_.at("other");
  arguments[3] = "run=" + directory_.at("third");
  expect_refused(arguments, {"tokenizer", "--tokenizer"});
}

TEST_F(BadInput, TextThatIsNotUtf8AndOutputThatIsFull) {
  write_text(directory_ / "hyp", "a\xFF b\n");
  write_text(directory_ / "ref", "a b\n");
  const Result scored = run({"score", "--hyp", directory_.at("hyp"), "--ref", directory_.at("ref")});
  EXPECT_EQ(scored.exit_code, 0) << scored.err;
  EXPECT_NE(scored.err.find("line 1 of " + directory_.at("hyp") + " is not valid UTF-8"), std::string::npos);
  EXPECT_NE(std::system((std::string(TANDEM_BINARY) + " score --hyp " + directory_.at("ref") + " --ref " +
                         directory_.at("ref") + " > /dev/full 2>/dev/null")
                            .c_str()),
            0);
}

}  // namespace
}  // namespace tandem::testing
