#include "report/run_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/file.h"
#include "core/human.h"
#include "report/forms.h"
#include "report/sentences/sentences.h"

namespace tandem::report {

namespace {

std::string utc(double time) {
  constexpr double kYear9999 = 253402300799.0;
  return time > 0 && time <= kYear9999
             ? fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(time)))
             : "not known";
}

// The facts that verdicts and their sentences rest on are computed once.
std::vector<Answer> answers_to(const observe::RunData& run, const observe::RunPlan& plan,
                               const observe::CheckpointFacts& checkpoint, const observe::Duration& duration) {
  const observe::RankMetrics& m = run.main();
  const observe::Learning learning = observe::learning_of(m, plan, duration.pace);
  const observe::Exchange exchange = observe::exchange_of(run);
  const observe::GpuWork work = observe::gpu_work_of(run, exchange.clocks);
  const observe::Storage storage = observe::storage_of(run, checkpoint, duration);
  std::vector<Answer> answers;
  const auto ask = [&](const char* key, const char* question, auto verdict_of, auto text_of, const auto& facts) {
    observe::Verdict verdict = verdict_of(facts);
    std::string text = text_of(facts, verdict);
    answers.push_back({key, question, std::move(verdict), std::move(text)});
  };
  const char* question_of_work = work.gpu ? "Are the GPUs doing work?" : "Is the hardware doing work?";
  ask("how_long", "How long does it take?", observe::how_long, how_long_text, duration);
  ask("trained_enough", "Is it fully trained?", observe::trained_enough, trained_enough_text, learning);
  ask("overfitting", "Does it overfit?", observe::overfitting, overfitting_text, learning);
  ask("gpu_work", question_of_work, observe::gpu_work, gpu_work_text, work);
  ask("network", "Is the network the bottleneck?", observe::network, network_text, exchange);
  ask("learning_rate", "How does the learning rate go?", observe::learning_rate_explained, learning_rate_text,
      observe::rate_course_of(m, plan));
  ask("training_set", "What is the training set?", observe::training_set, training_set_text, run.stats);
  ask("checkpoint_contents", "What does a checkpoint consist of?", observe::checkpoint_contents,
      checkpoint_contents_text, storage);
  ask("checkpoint_size", "How big is a checkpoint?", observe::checkpoint_size, checkpoint_size_text, storage);
  ask("step_time", "How long is a step?", observe::step_time, step_time_text, observe::step_times_of(m));
  ask("step_and_network", "How do step time and network go together?", observe::step_and_network, step_and_network_text,
      exchange);
  ask("slow_rank", "Does one rank hold up the others?", observe::slow_rank, slow_rank_text, exchange);
  ask("nonfinite", "Was every number finite?", observe::nonfinite, nonfinite_text, observe::finiteness_of(m));
  ask("disk", "Will the disk be full?", observe::disk, disk_text, storage);
  return answers;
}

}  // namespace

RunReport make_report(observe::RunData run, observe::RunPlan plan, const observe::CheckpointFacts& checkpoint,
                      double now, double price_per_hour) {
  const observe::Duration duration = observe::duration_of(run.main(), plan, now, price_per_hour);
  std::vector<Answer> answers = answers_to(run, plan, checkpoint, duration);
  return {.run = std::move(run),
          .plan = std::move(plan),
          .answers = std::move(answers),
          .ended = duration.ended(),
          .time = now};
}

void write_reports(std::span<const RunReport> reports, const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  require(!error, "cannot make the directory {}: {}", directory.string(), error.message());
  write_file(directory / "report.html", to_html(reports));
  write_file(directory / "report.md", to_markdown(reports));
  write_file(directory / "report.json", to_json(reports));
}

std::vector<std::pair<std::string, double>> time_split(const observe::RankMetrics& metrics) {
  const observe::TrainPoint sums = observe::total(metrics.train);
  return {{"compute", sums.compute_seconds},
          {"exposed communication", sums.communication_seconds},
          {"waiting for data", sums.data_seconds},
          {"other", sums.other_seconds},
          {"validation", metrics.validation_seconds()},
          {"checkpoints", sums.checkpoint_seconds}};
}

double steps_in(const observe::RankMetrics& metrics) { return observe::total(metrics.train).steps; }

std::vector<observe::ValidPoint> some_validations(const observe::RankMetrics& metrics, size_t most) {
  std::vector<observe::ValidPoint> some;
  const size_t all = metrics.valid.size(), stride = all / most + (all % most > 0 ? 1 : 0);
  for (size_t i = 0; i < all; ++i) {
    if ((all - 1 - i) % stride == 0) {
      some.push_back(metrics.valid[i]);
    }
  }
  return some;
}

std::vector<observe::SamplePoint> last_samples(const observe::RankMetrics& metrics) {
  std::vector<observe::SamplePoint> samples;
  for (const observe::SamplePoint& sample : metrics.samples) {
    if (sample.step == metrics.samples.back().step) {
      samples.push_back(sample);
    }
  }
  return samples;
}

std::vector<std::pair<std::string, std::string>> environment_of(const RunReport& report) {
  const observe::RankMetrics& m = report.run.main();
  std::vector<std::pair<std::string, std::string>> facts = {
      {"Report made", utc(report.time)},
      {"Report made by", "tandem " TANDEM_VERSION},
      {"First record", utc(m.train.empty() ? 0 : m.train.front().time)},
      {"Last record", utc(m.last_time())}};
  for (const observe::RankMetrics& rank : report.run.ranks) {
    const observe::SetupPoint setup = observe::setup_of(rank);
    std::string text;
    const auto add = [&](const char* what, const std::string& value) {
      text += value.empty() ? "" : fmt::format("{}{}{}", text.empty() ? "" : ", ", what, value);
    };
    add("host ", setup.host);
    add("", rank.gpu_name.empty() ? setup.device : rank.gpu_name);
    add("", setup.backend);
    add("", setup.precision);
    add("on the wire ", setup.wire);
    add("interface ", setup.interface);
    add("tandem ", setup.version);
    facts.emplace_back(fmt::format("Rank {}", rank.rank), text.empty() ? "says nothing about itself" : text);
  }
  return facts;
}

std::string reading_notes(const observe::RankMetrics& metrics) {
  std::string notes = fmt::format("{} lines of metrics read", grouped(metrics.lines));
  const auto note = [&](int64_t count, const char* what) {
    notes += count > 0 ? fmt::format(", {} {}", grouped(count), what) : "";
  };
  note(metrics.unreadable, "left out as unreadable");
  note(metrics.out_of_order, "left out as out of order");
  note(metrics.superseded, "times back to an earlier step: what came after it then is superseded");
  return notes + ".";
}

}  // namespace tandem::report
