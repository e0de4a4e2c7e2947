#include "train/run_observer.h"

#include "core/log.h"
#include "train/read_report.h"
#include "train/reporting.h"

namespace tandem::train {

RunObserver::RunObserver(GroupRun& run, const TrainConfig& config, const std::string& gpu, std::optional<int64_t> done)
    : run_(run), log_(run.directory().metrics(), run.directory().events(), run.rank(), done), step_(done.value_or(0)) {
  log_.hyperparameters(hyperparameters(config));
  log_.text(step_, "config", "```\n" + to_toml(config) + "```");
  start_probes(config, gpu);
}

void RunObserver::start_probes(const TrainConfig& config, const std::string& gpu) {
  if (config.log.probe_seconds == 0) {
    return;
  }
  const observe::ProbeOptions options{.period = config.log.probe_seconds,
                                      .run = run_.directory().root(),
                                      .interface = run_.interface(),
                                      .gpu = gpu,
                                      .host = run_.group().local_rank() == 0};
  probes_.emplace(options, [this](observe::Record record) {
    record.step = step_;
    write(record);
  });
}

void RunObserver::write(const observe::Record& record) {
  const std::lock_guard lock(mutex_);
  log_.write(record);
}

void RunObserver::rewind(int64_t done) {
  const std::lock_guard lock(mutex_);
  log_.rewind(done);
}

void RunObserver::sync() {
  const std::lock_guard lock(mutex_);
  log_.sync();
}

void RunObserver::write_report() {
  if (!run_.first()) {
    return;
  }
  try {
    const report::RunReport report = read_report(run_.directory().root());
    report::write_reports(std::span(&report, 1), run_.directory().root());
  } catch (const std::exception& error) {
    log::warning("no report was written: {}", error.what());
  }
}

void RunObserver::finish(bool success) {
  probes_.reset();
  {
    const std::lock_guard lock(mutex_);
    log_.finish(success);
  }
  write_report();
}

}  // namespace tandem::train
