#include "store/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

#include "compare.h"
#include "core/file.h"
#include "core/manifest.h"
#include "core/philox.h"
#include "store/safetensors.h"
#include "temporary_directory.h"

namespace tandem::store {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryDirectory;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

ParameterLayout small_layout(int64_t rows = 5) {
  ParameterLayout layout;
  layout.add_matrix("embedding", rows, 3, Init::embedding);
  layout.add_vector("norm.scale", 7, Init::one);
  layout.add_matrix("out", 2, 3, Init::glorot);
  return layout;
}

// Flat buffers with random numbers in the parameters and zeros in the gaps.
struct Tensors {
  explicit Tensors(const ParameterLayout& layout, uint32_t seed = 0) {
    for (auto* flat : {&weights, &m, &v, &ema}) {
      flat->assign(static_cast<size_t>(layout.flat_size()), 0.0F);
      if (seed > 0) {
        for (const Parameter& parameter : layout.all()) {
          testing::fill_random(std::span(flat->data() + parameter.offset, static_cast<size_t>(parameter.size())),
                               seed++);
        }
      } else {
        std::fill(flat->begin(), flat->end(), NAN);
      }
    }
  }
  CheckpointTensors views(bool with_ema) {
    const auto view = [](std::vector<float>& flat) { return host_view(flat.data(), 1, std::ssize(flat)); };
    return {view(weights), {{"m", view(m)}, {"v", view(v)}}, with_ema ? view(ema) : View{}};
  }

  std::vector<float> weights, m, v, ema;
};

Checkpoint some_checkpoint(int64_t step, double nll = NAN) {
  Checkpoint checkpoint;
  CheckpointState& s = checkpoint.state;
  s.step = step;
  s.updates = step + 2;
  s.cursor = {3, 1234567890123};
  s.epochs_done = 3.1;
  s.elapsed_seconds = 0.1 + 1e-9;
  s.pairs = 11;
  s.source_tokens = 12;
  s.target_tokens = 13;
  s.seed = UINT64_MAX;
  s.data_fingerprint = "abc";
  s.validations = 4;
  s.bad_validations = 2;
  s.best_step = 7;
  s.skipped = 2;
  s.skipped_in_a_row = 1;
  s.rollbacks = 1;
  s.learning_rate_factor = 0.5;
  if (!std::isnan(nll)) {
    s.best_score = nll;
    s.metrics = {{"nll", nll}, {"bleu", 100 - nll}};
    s.metrics_step = step;
  }
  checkpoint.config_toml = "seed = 1\n";
  checkpoint.source_tokenizer = std::string("model\0bytes", 11);
  return checkpoint;
}

fs::path save(const fs::path& run, int64_t step, double nll = NAN, uint32_t seed = 5) {
  const ParameterLayout layout = small_layout();
  Tensors tensors(layout, seed);
  return save_checkpoint(run, some_checkpoint(step, nll), layout, tensors.views(true));
}

void flip_bit(const fs::path& path, uint64_t byte) {
  std::string content = read_file(path);
  content[byte] = static_cast<char>(content[byte] ^ 4);
  std::ofstream(path, std::ios::binary) << content;
}

TEST(Checkpoint, GivesBackEveryBit) {
  const TemporaryDirectory run(testing::memory_directory());
  const ParameterLayout layout = small_layout();
  Tensors saved(layout, 5), loaded(layout);
  Checkpoint checkpoint = some_checkpoint(1200, 2.5);
  checkpoint.target_tokenizer = "other";
  const fs::path directory = save_checkpoint(run.path(), checkpoint, layout, saved.views(true));
  EXPECT_EQ(directory, run / "checkpoints/step-00001200");
  EXPECT_TRUE(load_tensors(directory, layout, loaded.views(true)));
  EXPECT_EQ(loaded.weights, saved.weights);
  EXPECT_EQ(loaded.m, saved.m);
  EXPECT_EQ(loaded.v, saved.v);
  EXPECT_EQ(loaded.ema, saved.ema);

  const Checkpoint again = load_checkpoint(directory);
  const CheckpointState &a = checkpoint.state, &b = again.state;
  EXPECT_EQ(again.config_toml, checkpoint.config_toml);
  EXPECT_EQ(again.source_tokenizer, checkpoint.source_tokenizer);
  EXPECT_EQ(again.target_tokenizer, "other");
  EXPECT_EQ(std::tie(a.step, a.updates, a.cursor.epoch, a.cursor.index, a.epochs_done, a.elapsed_seconds, a.pairs),
            std::tie(b.step, b.updates, b.cursor.epoch, b.cursor.index, b.epochs_done, b.elapsed_seconds, b.pairs));
  EXPECT_EQ(std::tie(a.source_tokens, a.target_tokens, a.seed, a.data_fingerprint, a.validations, a.bad_validations),
            std::tie(b.source_tokens, b.target_tokens, b.seed, b.data_fingerprint, b.validations, b.bad_validations));
  EXPECT_EQ(std::tie(a.best_score, a.best_step, a.metrics, a.metrics_step, a.skipped, a.skipped_in_a_row),
            std::tie(b.best_score, b.best_step, b.metrics, b.metrics_step, b.skipped, b.skipped_in_a_row));
  EXPECT_EQ(std::tie(a.rollbacks, a.learning_rate_factor), std::tie(b.rollbacks, b.learning_rate_factor));
  std::vector<float> inference(saved.weights.size(), NAN);
  load_inference_weights(directory, layout, host_view(inference.data(), 1, std::ssize(inference)));
  EXPECT_EQ(inference, saved.ema);
}

// A slot of any shape beside those that have a number for each parameter.
TEST(Checkpoint, AnOptimizersStateHasAnySlots) {
  const TemporaryDirectory run(testing::memory_directory());
  const ParameterLayout layout = small_layout();
  Tensors saved(layout, 5), loaded(layout);
  std::vector<float> scales{1, 2, 3, 4, 5, 6}, loaded_scales(6);
  const auto tensors = [](Tensors& of, std::vector<float>& values, int64_t rows) {
    CheckpointTensors all = of.views(false);
    all.slots = {all.slots[1], {"scales", host_view(values.data(), rows, 6 / rows), false}};
    return all;
  };
  const fs::path directory = save_checkpoint(run.path(), some_checkpoint(1), layout, tensors(saved, scales, 2));
  load_tensors(directory, layout, tensors(loaded, loaded_scales, 2));
  EXPECT_EQ(loaded.v, saved.v);
  EXPECT_EQ(loaded_scales, scales);
  EXPECT_TRUE(contains(message_of([&] { load_tensors(directory, layout, tensors(loaded, loaded_scales, 3)); }),
                       "no F32 [3, 2] 'scales'"));
  EXPECT_TRUE(
      contains(message_of([&] { load_tensors(directory, layout, loaded.views(false)); }), "'m.embedding' is missing"));
}

TEST(Checkpoint, WithoutMovingAverageAndWithNanMetrics) {
  const TemporaryDirectory run(testing::memory_directory());
  const ParameterLayout layout = small_layout();
  Tensors saved(layout, 5), loaded(layout);
  Checkpoint checkpoint = some_checkpoint(1);
  checkpoint.state.metrics = {{"nll", NAN}};
  const fs::path directory = save_checkpoint(run.path(), checkpoint, layout, saved.views(false));
  EXPECT_FALSE(load_tensors(directory, layout, loaded.views(true)));
  EXPECT_EQ(loaded.v, saved.v);
  EXPECT_TRUE(std::isnan(load_checkpoint(directory).state.metrics.at("nll")));
  EXPECT_FALSE(load_checkpoint(directory).state.best_score.has_value());
  load_inference_weights(directory, layout, loaded.views(true).ema);
  EXPECT_EQ(loaded.ema, saved.weights);
}

TEST(Checkpoint, SavingTheSameStepAgainReplacesIt) {
  const TemporaryDirectory run(testing::memory_directory());
  save(run.path(), 10, 3.0);
  const fs::path directory = save(run.path(), 10, 2.0);
  EXPECT_EQ(load_checkpoint(directory).state.metrics.at("nll"), 2.0);
  EXPECT_EQ(list_checkpoints(run.path()).size(), 1u);
  EXPECT_EQ(find_latest(run.path()), directory);
}

TEST(Checkpoint, EveryDamagedFileIsNamed) {
  const TemporaryDirectory run(testing::memory_directory());
  const fs::path directory = save(run.path(), 10);
  std::vector<std::string> names = {"manifest.json"};
  for (const ManifestFile& file : read_manifest(directory).files) {
    names.push_back(file.name);
  }
  EXPECT_EQ(names.size(), 7u);
  for (const std::string& name : names) {
    const fs::path path = directory / name;
    const std::string good = read_file(path);
    for (const size_t byte : {size_t{0}, good.size() / 2, good.size() - 1}) {
      flip_bit(path, byte);
      EXPECT_TRUE(contains(message_of([&] { load_checkpoint(directory); }), name)) << name << " byte " << byte;
      std::ofstream(path, std::ios::binary) << good;
    }
    for (const size_t length : {size_t{0}, good.size() - 1}) {
      std::ofstream(path, std::ios::binary) << good.substr(0, length);
      EXPECT_TRUE(contains(message_of([&] { load_checkpoint(directory); }), name)) << name << " cut to " << length;
    }
    fs::remove(path);
    EXPECT_TRUE(contains(message_of([&] { load_checkpoint(directory); }), name)) << name << " missing";
    std::ofstream(path, std::ios::binary) << good;
    EXPECT_EQ(message_of([&] { load_checkpoint(directory); }), "");
  }
}

TEST(Checkpoint, EveryBitOfTheManifestCounts) {
  const TemporaryDirectory run(testing::memory_directory());
  const fs::path path = save(run.path(), 10) / "manifest.json";
  const std::string good = read_file(path);
  for (size_t bit = 0; bit < good.size() * 8; bit += 7) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    std::ofstream(path, std::ios::binary) << bad;
    EXPECT_TRUE(contains(message_of([&] { read_manifest(path.parent_path()); }), "manifest.json")) << "bit " << bit;
  }
}

// A value that is copied or shown would take one frame of the stack for each bracket.
TEST(Checkpoint, DeepNestingIsAnError) {
  const TemporaryDirectory run(testing::memory_directory());
  const fs::path directory = save(run.path(), 10);
  const std::string deep = "\"version\":" + std::string(400000, '[') + std::string(400000, ']');
  for (const char* name : {"manifest.json", "state.json"}) {
    std::string text = read_file(directory / name);
    const size_t begin = text.find("\"version\":");
    ASSERT_NE(begin, std::string::npos) << name;
    text.replace(begin, text.find_first_of(",}", begin) - begin, deep);
    const std::string message = message_of([&] {
      if (std::string(name) == "state.json") {
        parse_state(text, name);
      } else {
        std::ofstream(directory / name, std::ios::binary) << text;
        read_manifest(directory);
      }
    });
    EXPECT_TRUE(contains(message, "nested more than 32 deep")) << message;
  }
}

TEST(Checkpoint, TensorsMustFitTheModel) {
  const TemporaryDirectory run(testing::memory_directory());
  const fs::path directory = save(run.path(), 10);
  const ParameterLayout other = small_layout(6);
  Tensors tensors(other);
  EXPECT_TRUE(contains(message_of([&] { load_tensors(directory, other, tensors.views(false)); }),
                       "'embedding' is F32 [5, 3] instead of F32 [6, 3]"));
  ParameterLayout larger = small_layout();
  larger.add_vector("extra", 2, Init::zero);
  Tensors more(larger);
  EXPECT_TRUE(contains(message_of([&] { load_tensors(directory, larger, more.views(false)); }), "'extra' is missing"));
  ParameterLayout smaller;
  smaller.add_matrix("embedding", 5, 3, Init::zero);
  Tensors less(smaller);
  EXPECT_TRUE(contains(message_of([&] { load_tensors(directory, smaller, less.views(false)); }), "not part of"));
}

TEST(Checkpoint, LatestFallsBackToTheNewestSoundOne) {
  const TemporaryDirectory run(testing::memory_directory());
  EXPECT_FALSE(find_latest(run.path()).has_value());
  save(run.path(), 10);
  save(run.path(), 20);
  const fs::path last = save(run.path(), 30);
  EXPECT_EQ(find_latest(run.path()), last);
  EXPECT_EQ(fs::read_symlink(run / "latest"), "checkpoints/step-00000030");
  flip_bit(last / "optimizer.safetensors", 500);
  EXPECT_EQ(find_latest(run.path()), run / "checkpoints/step-00000020");
  fs::remove(run / "latest");
  EXPECT_EQ(find_latest(run.path()), run / "checkpoints/step-00000020");
  flip_bit(run / "checkpoints/step-00000020/state.json", 5);
  fs::resize_file(run / "checkpoints/step-00000010/config.toml", 3);
  const std::string message = message_of([&] { find_latest(run.path()); });
  EXPECT_TRUE(contains(message, "step-00000030/optimizer.safetensors is damaged")) << message;
}

TEST(Checkpoint, KeepsTheNewestTheBestAndWhatLinksPointAt) {
  const TemporaryDirectory run(testing::memory_directory());
  const double nll[] = {5, 1, 4, 2, 3, NAN, 6, 7};
  std::vector<fs::path> saved;
  for (int i = 0; i < 8; ++i) {
    saved.push_back(save(run.path(), 10 * (i + 1), nll[i]));
  }
  set_best(run.path(), saved[2]);
  const auto steps = [&] {
    std::vector<std::string> names;
    for (const fs::path& directory : list_checkpoints(run.path())) {
      names.push_back(directory.filename().string().substr(11));
    }
    return names;
  };
  remove_old_checkpoints(run.path(), {.newest = 2, .best = 2}, Metric::nll);
  EXPECT_EQ(steps(), (std::vector<std::string>{"20", "30", "40", "70", "80"}));
  remove_old_checkpoints(run.path(), {.newest = 1, .best = 1}, Metric::bleu);  // 100 - nll: the same order
  EXPECT_EQ(steps(), (std::vector<std::string>{"20", "30", "80"}));
  remove_old_checkpoints(run.path(), {.newest = 1, .best = 0}, Metric::nll);
  EXPECT_EQ(steps(), (std::vector<std::string>{"30", "80"}));
  EXPECT_EQ(resolve_model(run.path()), fs::canonical(saved[2]));
}

TEST(Checkpoint, ModelsAreFoundByRunCheckpointLinkOrModel) {
  const TemporaryDirectory run(testing::memory_directory());
  EXPECT_TRUE(contains(message_of([&] { resolve_model(run / "none"); }), "there is no model"));
  EXPECT_TRUE(contains(message_of([&] { resolve_model(run.path()); }), "holds no checkpoint"));
  const fs::path directory = save(run.path(), 10);
  const fs::path full = fs::canonical(directory);
  EXPECT_EQ(resolve_model(run.path()), full);
  EXPECT_EQ(resolve_model(directory), full);
  EXPECT_EQ(resolve_model(run / "latest"), full);
  EXPECT_TRUE(contains(message_of([&] { resolve_model(directory / "state.json"); }), "is a file"));

  const ParameterLayout layout = small_layout();
  Tensors tensors(layout, 9), loaded(layout);
  const fs::path model = run / "model";
  save_model(model, some_checkpoint(10), layout, tensors.views(false).weights);
  EXPECT_EQ(resolve_model(model), fs::canonical(model));
  load_inference_weights(model, layout, loaded.views(false).weights);
  EXPECT_EQ(loaded.weights, tensors.weights);
  EXPECT_NE(message_of([&] { save_model(model, some_checkpoint(1), layout, tensors.views(false).weights); }), "");
  EXPECT_TRUE(contains(message_of([&] { load_tensors(model, layout, loaded.views(false)); }), "no optimizer state"));
}

TEST(Checkpoint, StaleRemainsAreRemoved) {
  const TemporaryDirectory run(testing::memory_directory());
  const fs::path directory = save(run.path(), 10);
  fs::create_directories(run / "checkpoints/.step-00000020.partial.abc");
  fs::create_directories(run / "checkpoints/.step-00000010.deleted/x");
  remove_stale_checkpoints(run.path());
  EXPECT_EQ(std::distance(fs::directory_iterator(run / "checkpoints"), {}), 1);
  EXPECT_EQ(find_latest(run.path()), directory);
}

// A child saves, marks the best and deletes old checkpoints as fast as it can until it is killed; it writes a byte to
// `done` after each.
[[noreturn]] void save_forever(const fs::path& run, int64_t step, int done) {
  const ParameterLayout layout = small_layout(4000);
  Tensors tensors(layout, 5);
  while (true) {
    ++step;
    tensors.weights[0] = static_cast<float>(step);
    const fs::path directory =
        save_checkpoint(run, some_checkpoint(step, 1.0 / static_cast<double>(step)), layout, tensors.views(true));
    set_best(run, directory);
    remove_old_checkpoints(run, {.newest = 2, .best = 1}, Metric::nll);
    [[maybe_unused]] const ssize_t written = ::write(done, "x", 1);
  }
}

// Lets a child save at least once, then kills it at a random moment of its next two saves.
void save_and_kill(const fs::path& run, int64_t step, PhiloxStream& random) {
  int done[2];
  ASSERT_EQ(::pipe(done), 0);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    save_forever(run, step, done[1]);
  }
  char byte = 0;
  ASSERT_EQ(::read(done[0], &byte, 1), 1);
  const std::chrono::duration<double> one = std::chrono::steady_clock::now() - begin;
  std::this_thread::sleep_for(one * 2 * uniform(random.next()));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(done[0]);
  ::close(done[1]);
}

TEST(Checkpoint, AKillAtAnyMomentLeavesALoadableRun) {
  const TemporaryDirectory run(testing::memory_directory());
  const ParameterLayout layout = small_layout(4000);
  PhiloxStream random(1, 2);
  int64_t step = 0;
  int unfinished = 0;
  for (int kill_number = 0; kill_number < 40 || (unfinished < 5 && kill_number < 400); ++kill_number) {
    remove_stale_checkpoints(run.path());
    ASSERT_NO_FATAL_FAILURE(save_and_kill(run.path(), step, random));
    const auto latest = find_latest(run.path());
    ASSERT_TRUE(latest.has_value());
    for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
      unfinished += entry.path().filename().string().starts_with('.') ? 1 : 0;
    }
    Tensors tensors(layout);
    const Checkpoint checkpoint = load_checkpoint(*latest);
    load_tensors(*latest, layout, tensors.views(true));
    EXPECT_GT(checkpoint.state.step, step);
    EXPECT_EQ(tensors.weights[0], static_cast<float>(checkpoint.state.step));
    EXPECT_EQ(message_of([&] { verify_checkpoint(resolve_model(run.path())); }), "");
    step = checkpoint.state.step;
  }
  EXPECT_GE(unfinished, 5) << "no kill met an unfinished checkpoint";
}

struct SmallDisk {
  explicit SmallDisk(fs::path where) : path(std::move(where)) {
    fs::create_directory(path);
    mounted = ::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  ~SmallDisk() {
    if (mounted) {
      ::umount2(path.c_str(), MNT_DETACH);
    }
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  fs::path path;
  bool mounted = false;
};

TEST(Checkpoint, AFullDiskChangesNothing) {
  const TemporaryDirectory base;
  const SmallDisk small(base / "disk");
  const fs::path& disk = small.path;
  if (!small.mounted) {
    GTEST_SKIP() << "cannot mount a small tmpfs here: " << std::strerror(errno);
  }
  const fs::path run = disk / "run";
  const ParameterLayout layout = small_layout(10000);  // 120 kB a buffer, 480 kB a checkpoint
  Tensors tensors(layout, 5);
  const fs::path first = save_checkpoint(run, some_checkpoint(10), layout, tensors.views(true));
  set_best(run, first);
  const auto second = [&] { save_checkpoint(run, some_checkpoint(20), layout, tensors.views(true)); };
  // Refused before anything is written ...
  std::ofstream(disk / "filler") << std::string(250000, 'x');
  const std::string refused = message_of(second);
  EXPECT_TRUE(contains(refused, "it needs 48")) << refused;
  EXPECT_TRUE(contains(refused, "are free")) << refused;
  // ... and in the middle, when the filesystem takes less than it promised: a limit on the size of a file.
  fs::remove(disk / "filler");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200000, 200000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(contains(message_of(second), "bytes needed") ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(find_latest(run), first);
  EXPECT_EQ(std::distance(fs::directory_iterator(run / "checkpoints"), {}), 1);
  EXPECT_EQ(resolve_model(run), fs::canonical(first));
  EXPECT_EQ(message_of(second), "");
}

}  // namespace
}  // namespace tandem::store
