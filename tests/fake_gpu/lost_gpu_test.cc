// A GPU that is missing, too old, too small or lost in the middle: one sentence, a non-zero exit, and checkpoints as
// they were. And what a step asks of the CUDA runtime.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "end_to_end/program.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 12, kInterval = 4;

// On the fake GPU nothing is computed: steps are given and taken, and the weights stay as they were drawn.
std::vector<std::string> on_gpu(const TemporaryDirectory& directory, const std::string& run,
                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> options{"device=cuda",
                                   "precision=auto",
                                   "model.width=64",
                                   "optimizer.ema_decay=0.9",
                                   "validation.max_sentences=4",
                                   "validation.train_sample=4",
                                   "validation.every_steps=8",
                                   "checkpoint.every_steps=" + std::to_string(kInterval)};
  options.insert(options.end(), more.begin(), more.end());
  return train_arguments(directory, run, kSteps, options);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// The error: the last line, as a sentence of tandem's.
std::string sentence(const Result& result) {
  const std::vector<std::string> lines = lines_of(result.err);
  return lines.empty() || lines.back().rfind("tandem: ", 0) != 0 ? "(none) " + result.err : lines.back();
}

class FakeGpu : public ::testing::Test {
 protected:
  void SetUp() override { make_small_corpus(directory_); }

  // Of a run that nothing disturbs: the names of all calls of the CUDA runtime, without those of closing it.
  std::vector<std::string> calls(const std::vector<std::string>& arguments) {
    constexpr size_t kClosing = 2;
    const Result result = run(arguments, "", {"FAKE_GPU_TRACE=" + directory_.at("trace")});
    EXPECT_EQ(result.exit_code, arguments[0] == "evaluate" ? 1 : 0) << result.err;  // no kernel counts its tokens
    std::vector<std::string> names = lines_of(read_text(directory_ / "trace"));
    names.resize(names.size() - std::min(names.size(), kClosing));
    return names;
  }

  TemporaryDirectory directory_;
};

TEST_F(FakeGpu, WhatIsMissingOrTooOldIsOneSentence) {
  struct Case {
    std::string setting, device, expected;
  };
  const Case cases[] = {
      {"FAKE_GPU_DRIVER=0", "cuda", "no NVIDIA driver was found"},
      {"FAKE_GPU_DRIVER=12040", "cuda", "the NVIDIA driver is too old: it knows CUDA 12.4 and this tandem needs "},
      {"FAKE_GPU_COUNT=0", "cuda", "no GPU can be used: "},
      {"FAKE_GPU_BROKEN=803", "cuda", "no GPU can be used: the fake GPU's error"},
      {"FAKE_GPU_COUNT=2", "cuda:2", "there is no GPU 2: this machine has 2, numbered from 0"},
      {"FAKE_GPU_CAPABILITY=75", "cuda", "GPU 0 (Fake GPU, compute capability 7.5) is too old: 8.0 or later"},
      {"FAKE_GPU_NO_CODE=1", "cuda",
       "this tandem has no code for GPU 0 (Fake GPU, compute capability 9.0): the fake GPU's error; build it with "
       "CUDAARCHS=90a make build, or use device=cpu"},
      {"FAKE_GPU_MEMORY=1000", "cuda", "out of GPU memory: 50.3 MB wanted, 1.00 kB of 1.00 kB free"},
  };
  for (const auto& [setting, device, expected] : cases) {
    const Result result = run(on_gpu(directory_, "run", {"device=" + device, "batch.micro_batch=256"}), "", {setting});
    EXPECT_EQ(result.exit_code, 1) << setting;
    EXPECT_NE(sentence(result).find(expected), std::string::npos) << setting << ": " << result.err;
    EXPECT_FALSE(fs::exists(directory_ / "run")) << setting;
  }
}

// The free memory decides the micro-batches of a step; a number that does not fit is refused with both figures.
TEST_F(FakeGpu, AMicroBatchFitsTheMemory) {
  const auto trained = [this](const std::string& micro_batch, const std::string& memory) {
    return run(on_gpu(directory_, "run-" + memory, {"batch.tokens=60000", "batch.micro_batch=" + micro_batch}), "",
               {"FAKE_GPU_MEMORY=" + memory});
  };
  const Result much = trained("\"fit\"", "1500000000");
  EXPECT_EQ(much.exit_code, 0) << much.err;
  EXPECT_NE(much.err.find("a step is one micro-batch of at most 53,"), std::string::npos) << much.err;
  const Result little = trained("\"fit\"", "500000000");
  EXPECT_EQ(little.exit_code, 0) << little.err;
  EXPECT_NE(little.err.find("a step is 2 micro-batches of at most 2"), std::string::npos) << little.err;
  // A run that goes on keeps its micro-batches where they fit, and says so where they do not.
  const auto goes_on = [this](const std::string& begun, const std::string& memory) {
    return run(on_gpu(directory_, "run-" + begun, {"batch.tokens=60000", "stop.max_steps=13"}), "",
               {"FAKE_GPU_MEMORY=" + memory});
  };
  const Result more = goes_on("500000000", "1500000000");
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.err.find("a step is 2 micro-batches of at most 2"), std::string::npos) << more.err;
  EXPECT_NE(more.err.find("; 1 would fit, but the run has micro-batches of this size"), std::string::npos) << more.err;
  EXPECT_EQ(more.err.find("the run will not give the same bits"), std::string::npos) << more.err;
  const Result less = goes_on("1500000000", "500000000");
  EXPECT_EQ(less.exit_code, 0) << less.err;
  EXPECT_NE(less.err.find("the run will not give the same bits"), std::string::npos) << less.err;
  const Result refused = trained("60000", "450000000");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(sentence(refused).find("batch.micro_batch = 60000 does not fit: a micro-batch takes "), std::string::npos)
      << refused.err;
}

// Workers have micro-batches of one size, whatever memory each finds, and keep it.
TEST_F(FakeGpu, WorkersHaveMicroBatchesOfOneSize) {
  const auto trained = [this](const std::string& memory, const std::string& steps) {
    const Result result =
        run(on_gpu(directory_, "run", {"batch.tokens=120000", "dist.engine=gloo", "stop.max_steps=" + steps}), "",
            {"FAKE_GPU_COUNT=2", "FAKE_GPU_MEMORY=" + memory});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("will not give the same bits"), std::string::npos) << result.err;
    return result.err;  // the first worker's
  };
  const auto rounds = [](const std::string& text) {
    std::set<std::string> said;
    for (size_t at = text.find("a step is "); at != std::string::npos; at = text.find("a step is ", at + 1)) {
      said.insert(text.substr(at, text.find(';', at) - at));
    }
    return said;
  };
  const std::set<std::string> begun = rounds(trained("1500000000,500000000", "8"));
  ASSERT_EQ(begun.size(), 1U);
  EXPECT_EQ(begun.begin()->find("a step is one micro-batch"), std::string::npos) << *begun.begin();
  EXPECT_EQ(rounds(trained("500000000,1500000000", "12")), begun);
  EXPECT_EQ(rounds(trained("1500000000", "13")), begun);
}

// However little there is: steps take what a validation leaves, or the run is refused at its beginning.
TEST_F(FakeGpu, ValidationsFindTheirMemory) {
  int trained = 0, refused = 0;
  for (const int megabytes : {160, 170, 180, 190, 200, 220, 240, 280, 320}) {
    const std::string memory = std::to_string(megabytes) + "000000";
    const Result result =
        run(on_gpu(directory_, "run-" + memory, {"batch.tokens=60000"}), "", {"FAKE_GPU_MEMORY=" + memory});
    if (result.exit_code == 0) {
      ++trained;
      EXPECT_NE(result.err.find("validation at step 12"), std::string::npos) << memory << ": " << result.err;
    } else {
      ++refused;
      EXPECT_NE(sentence(result).find("not even a micro-batch of one sentence fits"), std::string::npos)
          << memory << ": " << result.err;
    }
  }
  EXPECT_GE(trained, 4);
  EXPECT_GE(refused, 1);
}

// A driver takes memory for kernels when they are first used, which for some is in the first validation: then it works
// through fewer tokens or sentences at a time.
TEST_F(FakeGpu, ValidationsGoOnWithLessMemoryThanPlanned) {
  int with_less = 0;
  for (const std::string kernel : {"1000000", "1500000", "2000000"}) {
    for (const std::string memory : {"280000000", "320000000", "360000000", "400000000"}) {
      const Result result = run(on_gpu(directory_, "run-" + kernel + "-" + memory, {"batch.tokens=60000"}), "",
                                {"FAKE_GPU_MEMORY=" + memory, "FAKE_GPU_KERNEL=" + kernel});
      EXPECT_EQ(result.exit_code, 0) << kernel << " " << memory << ": " << result.err;
      EXPECT_NE(result.err.find("validation at step 12"), std::string::npos) << result.err;
      with_less += result.err.find("tokens at a time") != std::string::npos ||
                           result.err.find("sentences are decoded together") != std::string::npos
                       ? 1
                       : 0;
    }
  }
  EXPECT_GE(with_less, 1);
}

// What cannot be had is refused before anything is computed, and before --start-over removes anything.
TEST_F(FakeGpu, AModelThatTheGpuCannotTakeIsRefusedFirst) {
  ASSERT_EQ(run(on_gpu(directory_, "run")).exit_code, 0);
  const std::string before = read_text(directory_ / "run/latest/model.safetensors");
  const auto refused = [this](const std::vector<std::string>& more, const std::string& memory) {
    std::vector<std::string> arguments = on_gpu(directory_, "run", more);
    arguments.emplace_back("--start-over");
    const Result result = run(arguments, "", {"FAKE_GPU_MEMORY=" + memory});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    return sentence(result);
  };
  EXPECT_NE(refused({"model.width=256", "model.heads=1"}, "500000000")
                .find("1 heads of a model of width 256 have 256 columns each, and on a GPU at most 128 are possible"),
            std::string::npos);
  const std::string large = refused({"model.width=1024", "model.heads=8"}, "300000000");
  EXPECT_NE(large.find("the model does not fit: its "), std::string::npos) << large;
  EXPECT_NE(large.find(" MB with gradients and the optimizer's state, and "), std::string::npos) << large;
  EXPECT_EQ(read_text(directory_ / "run/latest/model.safetensors"), before);
}

// Of several GPUs of which one is too old, the others are taken, one worker each.
TEST_F(FakeGpu, GpusThatAreTooOldAreLeftOut) {
  struct Case {
    std::string capabilities, count, old, used;
  };
  for (const auto& [capabilities, count, old, used] :
       {Case{"75,90", "2", "GPU 0", "(GPU 1, "}, Case{"90,75", "2", "GPU 1", "(GPU 0, "},
        Case{"75,90,90", "3", "GPU 0", "(GPU 1, "}}) {
    const Result result = run(on_gpu(directory_, "run-" + capabilities, {"device=auto", "dist.engine=gloo"}), "",
                              {"FAKE_GPU_CAPABILITY=" + capabilities, "FAKE_GPU_COUNT=" + count});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find(old + " (Fake GPU, compute capability 7.5) is too old"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(used), std::string::npos) << result.err;
  }
}

// Every kind of GPU takes its own way through the ops: Hopper's kernels, or cuBLASLt and plain ones.
TEST_F(FakeGpu, RunsEndOnEveryKindOfGpu) {
  for (const char* capability : {"80", "86", "90", "100", "120"}) {
    const std::string name = std::string("run-") + capability;
    const Result result = run(on_gpu(directory_, name), "", {std::string("FAKE_GPU_CAPABILITY=") + capability});
    EXPECT_EQ(result.exit_code, 0) << capability << ": " << result.err;
    EXPECT_TRUE(fs::exists(directory_ / name / "latest/model.safetensors")) << capability;
    const bool compiled = std::string(capability) == "80" || std::string(capability) == "90";
    EXPECT_EQ(result.err.find("the driver compiles for this GPU") == std::string::npos, compiled) << result.err;
  }
}

// Between two launches of a step's graph the host copies a batch and orders two streams: no kernel is launched by
// itself, nothing is allocated, and it waits for no more than a result of some steps ago.
TEST_F(FakeGpu, AStepIsOneGraph) {
  const std::vector<std::string> all =
      calls(on_gpu(directory_, "run", {"validation.every_steps=0", "checkpoint.every_steps=0"}));
  const auto first = std::find(all.begin(), all.end(), "cudaGraphLaunch");
  auto last = first;
  int steps = 0;
  for (auto call = first; call != all.end(); ++call) {
    if (*call == "cudaGraphLaunch" && ++steps < kSteps) {
      last = call;
    }
  }
  ASSERT_GE(steps, kSteps - 1);  // the first one is not recorded; validation's come after them
  for (auto call = first; call != last; ++call) {
    EXPECT_TRUE(*call == "cudaGraphLaunch" || *call == "cudaMemcpyAsync" || *call == "cudaEventRecord" ||
                *call == "cudaStreamWaitEvent" || *call == "cudaEventSynchronize")
        << *call << " between steps";
  }
}

TEST_F(FakeGpu, AlgorithmsAreTunedAndKept) {
  const auto tune = [this](const std::string& table, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"tune",
                                       directory_.at("config.toml"),
                                       "data=" + directory_.at("data"),
                                       "device=cuda",
                                       "precision=auto",
                                       "model.width=64",
                                       "--out",
                                       directory_.at(table)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, "", {"FAKE_GPU_CAPABILITY=80", "FAKE_GPU_COUNT=2"});
  };
  const auto lines = [this](const std::string& table) { return lines_of(read_text(directory_ / table)); };

  const Result one = tune("one", {"device=cuda:0"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(lines("one")[0].rfind("tandem matrix products 1; Fake GPU; cuBLASLt ", 0), 0U) << lines("one")[0];
  // A sentence budget has steps of several sizes, each with its own products.
  const Result sizes = tune("sizes", {"device=cuda:0", "batch.sentences=40"});
  ASSERT_EQ(sizes.exit_code, 0) << sizes.err;
  EXPECT_GT(lines("sizes").size(), 2 * lines("one").size());
  // Two GPUs share a step: its products have about half the rows.
  const Result two = tune("two", {});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_NE(two.out.find("a step's share of 2 workers takes"), std::string::npos) << two.out;
  EXPECT_NE(lines("two"), lines("one"));

  ASSERT_EQ(run(on_gpu(directory_, "run", {"algorithms=" + directory_.at("one")})).exit_code, 0);
  EXPECT_EQ(read_text(directory_ / "run/algorithms.txt"), read_text(directory_ / "one"));
  const Result other = run(on_gpu(directory_, "run", {"algorithms=" + directory_.at("two"), "stop.max_steps=14"}));
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_NE(other.err.find("the run keeps the algorithms that it began with"), std::string::npos) << other.err;
  EXPECT_EQ(read_text(directory_ / "run/algorithms.txt"), read_text(directory_ / "one"));

  // Tables of another GPU or library, and damaged ones.
  const std::string table = read_text(directory_ / "one");
  write_text(directory_ / "foreign", "tandem matrix products 1; Other GPU; cuBLASLt 1\n");
  write_text(directory_ / "damaged", table.substr(0, table.find('\n') + 30) + "\n");
  for (const auto& [name, expected] : {std::pair("foreign", "but this is \"tandem matrix products 1; Fake GPU"),
                                       std::pair("damaged", ":2 is not a line of a table of matrix products")}) {
    const Result result = run(on_gpu(directory_, "new", {std::string("algorithms=") + directory_.at(name)}));
    EXPECT_EQ(result.exit_code, 1) << name;
    EXPECT_NE(sentence(result).find(expected), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(directory_ / "new"));
  }
  // A run whose table is of no use any more takes the new one, and keeps that.
  write_text(directory_ / "run/algorithms.txt", read_text(directory_ / "foreign"));
  const Result renewed = run(on_gpu(directory_, "run", {"algorithms=" + directory_.at("two"), "stop.max_steps=15"}));
  EXPECT_EQ(renewed.exit_code, 0) << renewed.err;
  EXPECT_NE(renewed.err.find("; the run will not give the same bits"), std::string::npos) << renewed.err;
  EXPECT_EQ(read_text(directory_ / "run/algorithms.txt"), read_text(directory_ / "two"));
  // And where the new one is of no use either, or gone, it goes on without.
  for (const auto& [name, steps] : {std::pair("foreign", 16), std::pair("gone", 17)}) {
    write_text(directory_ / "run/algorithms.txt", read_text(directory_ / "foreign"));
    const Result without = run(
        on_gpu(directory_, "run", {"algorithms=" + directory_.at(name), "stop.max_steps=" + std::to_string(steps)}));
    EXPECT_EQ(without.exit_code, 0) << without.err;
    EXPECT_NE(without.err.find("; the run continues without a table"), std::string::npos) << without.err;
  }
  const Result cpu = tune("three", {"device=cpu"});
  EXPECT_EQ(cpu.exit_code, 1);
  EXPECT_NE(sentence(cpu).find("only a GPU has algorithms to choose from"), std::string::npos) << cpu.err;
}

TEST_F(FakeGpu, ALostGpuLosesNoCheckpoint) {
  const auto total = static_cast<long>(calls(on_gpu(directory_, "quiet")).size());
  const std::string expected = read_text(directory_ / "quiet/latest/model.safetensors");
  ASSERT_GT(expected.size(), 1000U);
  const long losses = std::getenv("TANDEM_SOAK") != nullptr ? total : 24;
  for (long i = 0; i < losses; ++i) {
    const long lost_at = 1 + i * (total - 1) / std::max(1L, losses - 1);
    const std::string name = "run-" + std::to_string(lost_at), what = "lost at call " + std::to_string(lost_at);
    const Result lost = run(on_gpu(directory_, name), "", {"FAKE_GPU_FAILS=" + std::to_string(lost_at)});
    ASSERT_EQ(lost.exit_code, 1) << what << ": " << lost.err;
    EXPECT_NE(sentence(lost).find("unspecified launch failure (cudaErrorLaunchFailure)"), std::string::npos)
        << what << ": " << lost.err;
    if (fs::exists(directory_ / name / "latest")) {
      const Result inspected = run({"inspect", directory_.at(name + "/latest")});
      EXPECT_EQ(inspected.exit_code, 0) << what << ": " << inspected.err;
    }
    const bool saved = fs::exists(directory_ / name / "latest");
    const Result again = run(on_gpu(directory_, name));
    ASSERT_EQ(again.exit_code, 0) << what << ", then: " << again.err;
    EXPECT_EQ(again.err.find("resuming from step ") != std::string::npos, saved) << what << ": " << again.err;
    EXPECT_EQ(read_text(directory_ / name / "latest/model.safetensors"), expected) << what;
    fs::remove_all(directory_ / name);
  }
}

// Whatever is asked of the CUDA runtime, its answer is looked at.
TEST_F(FakeGpu, EveryKindOfCallIsChecked) {
  const std::vector<std::string> all = calls(on_gpu(directory_, "quiet"));
  const std::set<std::string> kinds(all.begin(), all.end());
  ASSERT_GT(kinds.size(), 15U);
  for (const std::string& kind : kinds) {
    const Result lost = run(on_gpu(directory_, kind), "", {"FAKE_GPU_FAILS_IN=" + kind, "FAKE_GPU_FAILS=1"});
    EXPECT_EQ(lost.exit_code, 1) << kind << ": " << lost.err;
    EXPECT_NE(sentence(lost).find("the GPU was lost at "), std::string::npos) << kind << ": " << lost.err;
  }
}

TEST_F(FakeGpu, OtherCommandsSayThatTheGpuIsLost) {
  ASSERT_EQ(run(on_gpu(directory_, "run")).exit_code, 0);
  const std::string model = directory_.at("run");
  const std::vector<std::vector<std::string>> commands{
      {"translate", "--model", model, "--device", "cuda", "--input", directory_.at("dev.en"), "--output",
       directory_.at("out")},
      {"evaluate", "--model", model, "--device", "cuda", "--source", directory_.at("dev.en"), "--target",
       directory_.at("dev.de")},
      {"bench", "step", "--model", "tiny", "--data", directory_.at("data"), "--device", "cuda", "--tokens", "512",
       "--steps", "2"},
      {"tune", directory_.at("config.toml"), "data=" + directory_.at("data"), "device=cuda", "precision=auto",
       "model.width=64", "--out", directory_.at("table")},
  };
  for (const auto& command : commands) {
    const auto total = static_cast<long>(calls(command).size());
    ASSERT_GT(total, 10) << command[0];
    fs::remove(directory_ / "out");
    for (const long lost_at : {1L, total / 3, 2 * total / 3, total}) {
      const Result lost = run(command, "", {"FAKE_GPU_FAILS=" + std::to_string(lost_at)});
      EXPECT_EQ(lost.exit_code, 1) << command[0] << " at " << lost_at << " of " << total << ": " << lost.err;
      EXPECT_NE(sentence(lost).find("the GPU was lost at "), std::string::npos) << command[0] << ": " << lost.err;
    }
    EXPECT_FALSE(fs::exists(directory_ / "out"));
  }
}

}  // namespace
}  // namespace tandem::testing
