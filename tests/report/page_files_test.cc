// Writes pages for look_with_chromium.py, into the directory that TANDEM_PAGES names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <span>

#include "core/file.h"
#include "report/forms.h"
#include "report/made_report.h"

namespace tandem::report {

namespace {

// Two machines on a slow link, with all that probes tell.
RunReport busy_report() {
  testing::MadeRun made{.validations = 40, .nll = testing::falling, .train_nll = testing::falling};
  made.bleu = [](double share) { return 34 * (1 - std::exp(-5 * share)); };
  observe::RunData run = made.make(3);
  run.name = "runs/two-machines";
  run.config = "seed = 1\n[batch]\ntokens = 25000\n[model]\npreset = \"base\"\n";
  for (const int index : {0, 1}) {
    for (int64_t step = 1000; step <= 40000; step += 8000) {
      run.ranks[0].samples.push_back(
          {step, index, "The house is small, but the garden is not.", "Das Haus ist klein, der Garten aber nicht.",
           step < 20000 ? "Das Haus ist das Haus." : "Das Haus ist klein, aber der Garten nicht."});
    }
  }
  observe::RankMetrics& first = run.ranks[0];
  for (observe::ValidPoint& v : first.valid) {
    v.bleu_low = v.bleu - 0.8;
    v.bleu_high = v.bleu + 0.8;
  }
  first.gpu_name = "NVIDIA H200";
  observe::SetupPoint setup;
  setup.host = "gpu1";
  setup.precision = "bf16";
  setup.peak_flops = 7e14;
  first.setups = {setup};
  for (observe::TrainPoint& t : first.train) {
    t.communication_seconds = 0.4 * t.compute_seconds;
    t.sent_bytes = t.received_bytes = 243.5e6 * t.steps;
    t.flops = 9e12 * t.steps;
    t.gradient_norm = 0.3 + 0.1 * std::sin(static_cast<double>(t.step));
    t.peak_memory_bytes = 4e9;
    t.accuracy = 0.5;
    observe::ProbePoint probe;
    probe.step = t.step;
    probe.time = t.time;
    probe.seconds = 10;
    probe.gpu_power_watts = 320 + 20 * std::sin(static_cast<double>(t.step) / 3000);
    probe.gpu_power_limit_watts = 700;
    probe.gpu_utilisation_percent = 100;
    probe.gpu_temperature_celsius = 61;
    probe.network_sent_bytes = probe.network_received_bytes = 1.1e9;
    probe.network_link_bits_per_second = 1e9;
    probe.cpu_busy = 0.2;
    probe.disk_free_bytes = 8e10 - 1e5 * static_cast<double>(t.step);
    first.probes.push_back(probe);
  }
  observe::RankMetrics second = first;
  second.rank = 1;
  run.ranks.push_back(second);
  return make_report(std::move(run), {}, {}, 1.8e9, 0);
}

TEST(PageFiles, Write) {
  const char* directory = std::getenv("TANDEM_PAGES");
  if (directory == nullptr) {
    GTEST_SKIP() << "TANDEM_PAGES is not set: look_with_chromium.py sets it";
  }
  const auto write = [&](const char* name, const std::vector<RunReport>& reports) {
    write_file(std::filesystem::path(directory) / name, to_html(reports));
  };
  RunReport other = testing::made_report({.nll = testing::settled}, 2);
  other.run.name = "runs/other";
  other.run.config = "seed = 2\n[batch]\ntokens = 25000\n";
  write("busy.html", {busy_report()});
  write("hostile.html", {testing::hostile_report()});
  write("several.html", {busy_report(), other, testing::hostile_report()});
  write("empty.html", {make_report({.name = "empty", .ranks = {{}}, .config = "", .stats = {}}, {}, {}, 1.8e9, 0)});
}

}  // namespace

}  // namespace tandem::report
