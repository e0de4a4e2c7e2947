#include "observe/run_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "read_metrics.h"
#include "temporary_directory.h"

namespace tandem::observe {
namespace {

using testing::read_metrics;

Record train_record(int64_t step, double shift) {
  const auto t = static_cast<double>(step);
  return Record{.kind = "train", .step = step}
      .add("loss", 9.5 / std::sqrt(t) + shift)
      .add("nll", 8.25 / std::sqrt(t) + shift)
      .add("learning_rate", 1e-7 * t)
      .add("gradient_norm", step == 70 ? std::numeric_limits<double>::quiet_NaN() : 1 + 1 / t)
      .add("clipped_gradient_norm", 1.0)
      .add("steps_per_second", 3.1)
      .add("epoch", t / 64)
      .add("tokens_per_second", 12345.678)
      .add("steps", 1)
      .add("step_seconds", 0.32)
      .add("compute_seconds", 0.25)
      .add("communication_seconds", 0.05)
      .add("data_seconds", 0.02)
      .add("sent_bytes", 365.3e6);
}

// Half a minute each; their own step is never right.
Record probe_record(int64_t step) {
  return Record{.kind = "probe", .step = step - 3}
      .add("seconds", 30)
      .add("gpu_power_watts", 45)
      .add("network_sent_bytes", 3e7)
      .add("net.eth0.sent_bytes", 3e7)
      .add("gpu_throttle", "idle");
}

Record setup_record(int64_t step) {
  return Record{.kind = "setup", .step = step}.add("schema", 1).add("host", "gpu1").add("wire", "f32");
}

void write_steps(RunLog& log, int64_t first, int64_t last, double shift) {
  for (int64_t step = first; step <= last; ++step) {
    log.write(train_record(step, shift));
    if (step % 5 == 0) {
      log.write(probe_record(step));
    }
    if (step % 50 == 0) {
      log.write(Record{.kind = "valid", .step = step}
                    .add("nll", 3.3 + shift)
                    .add("perplexity", std::exp(3.3 + shift))
                    .add("bleu", 12.34567 + shift)
                    .add("chrf", 45.6)
                    .add("signature", "nrefs:1|case:mixed"));
      for (int index = 0; index < 2; ++index) {
        log.write(Record{.kind = "sample", .step = step}
                      .add("index", index)
                      .add("source", "zwei *Hunde*")
                      .add("translation", "two <b>dogs</b>\n& a \xE2\x96\x81"));
      }
      log.sync();
    }
  }
}

// A run that is killed at step 130, resumed from the checkpoint of step 100, and rolled back at 180 to 150. Read by
// read_with_tensorboard.py where TANDEM_RUN_DIRECTORY is set.
TEST(RunLog, writes_a_run_with_a_resume_and_a_rollback) {
  const testing::TemporaryDirectory temporary;
  const char* wanted = std::getenv("TANDEM_RUN_DIRECTORY");
  const std::filesystem::path run = wanted != nullptr ? std::filesystem::path(wanted) : temporary.path();
  {
    RunLog log(run / "metrics", run / "tensorboard");
    log.hyperparameters({{"batch.tokens", 25000.0}, {"model.preset", std::string("base")}, {"joint", true}});
    log.text(0, "config", "    [batch]\n    tokens = 25000\n");
    log.write(setup_record(0));
    write_steps(log, 1, 130, 0);
  }
  {
    RunLog log(run / "metrics", run / "tensorboard", 0, 100);
    log.write(Record{.kind = "event", .step = 100}.add("name", "resume").add("seconds", 1.5));
    log.write(setup_record(100));
    write_steps(log, 101, 180, 0.25);
    log.rewind(150);
    write_steps(log, 151, 200, 0.5);
    log.finish(true);
  }

  const testing::Metrics metrics = read_metrics(run / "metrics" / "0.jsonl");
  EXPECT_EQ(metrics.skipped, 0);
  int64_t step = 0;
  for (const Record& record : metrics.records) {
    if (record.kind == "probe") {
      EXPECT_EQ(record.step, step) << "the step of the record before it";
    }
    if (record.kind == "train") {
      EXPECT_EQ(record.step, ++step);
      const double shift = step <= 100 ? 0 : step <= 150 ? 0.25 : 0.5;
      EXPECT_EQ(record.number("nll"), 8.25 / std::sqrt(static_cast<double>(step)) + shift);
    }
  }
  EXPECT_EQ(step, 200);
  EXPECT_EQ(metrics.records.size(), 200U + 4 + 8 + 1 + 40 + 2);
}

TEST(RunLog, other_ranks_write_no_events) {
  const testing::TemporaryDirectory directory;
  RunLog log(directory.path() / "metrics", directory.path() / "tensorboard", 3);
  log.write(train_record(1, 0));
  log.rewind(0);
  log.write(train_record(1, 0));
  log.write(probe_record(1));
  log.finish(true);
  EXPECT_EQ(read_metrics(directory.path() / "metrics" / "3.jsonl").records.size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "tensorboard"));
}

TEST(RunLog, tags) {
  EXPECT_EQ(tag_of("train", "learning_rate"), "learning_rate");
  EXPECT_EQ(tag_of("train", "gradient_norm"), "Loss_Optimization/global_gradient_norm");
  EXPECT_EQ(tag_of("train", "steps_per_second"), "global_step/sec");
  EXPECT_EQ(tag_of("train", "loss"), "train/loss_smoothed");
  EXPECT_EQ(tag_of("valid", "bleu"), "valid/BLEU");
  EXPECT_EQ(tag_of("valid", "nll"), "valid/nll");
  EXPECT_EQ(tag_of("valid", "learning_rate"), "valid/learning_rate");
}

}  // namespace
}  // namespace tandem::observe
