// Reports of made-up runs, friendly and hostile ones.
#pragma once

#include "observe/made_run.h"
#include "report/run_report.h"

namespace tandem::testing {

inline report::RunReport made_report(const MadeRun& made = {}, uint64_t seed = 1) {
  return report::make_report(made.make(seed), {}, {}, 1.8e9, 0);
}

// Texts that would be markup, code or commands wherever they are taken for such.
inline report::RunReport hostile_report() {
  observe::RunData run = MadeRun{}.make(1);
  observe::RankMetrics& m = run.ranks[0];
  m.samples = {
      {20000, 0, "<script>alert(1)</script>", "a | b\n\n# not a heading", "[x](javascript:alert(1)) `*_\\"},
      {20000, 1, "\x1b[31mred\x07", "\xff\xfe broken", "</pre>&amp; ``` ![x](y)"},
      {20000, 2, "</script><script>document.title='PWNED'</script>", "<!--<script>", "\xE2\x80\xA8\xE2\x80\xA9"}};
  m.events.push_back({20000, 0, "end", "<img src=x onerror=\"document.title='PWNED'\">"});
  m.bleu_signature = "<b>";
  m.valid[2].nll = 1e300;
  m.valid[3].bleu = observe::kUnknown;
  m.valid[4].nll = std::numeric_limits<double>::infinity();
  m.train[5].gradient_norm = -std::numeric_limits<double>::infinity();
  m.train[6].source_tokens = 1e15;
  run.name = "runs/<i>";
  run.config = "a = 1\n```\n</code><script>\n\x1b[2J";
  return report::make_report(std::move(run), {}, {}, 0, 0);
}

}  // namespace tandem::testing
