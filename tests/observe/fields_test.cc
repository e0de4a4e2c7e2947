#include "observe/fields.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "core/file.h"
#include "known_fields.h"
#include "observe/metrics_writer.h"
#include "observe/probes/host_probes.h"
#include "observe/run_reader.h"
#include "temporary_directory.h"

namespace tandem::observe {
namespace {

using testing::memory_directory;
using testing::TemporaryDirectory;

const char* text_of(Merge rule) {
  switch (rule) {
    case Merge::last:
      return "last";
    case Merge::sum:
      return "sum";
    case Merge::most:
      return "most";
    case Merge::by_tokens:
      return "mean by target tokens";
    case Merge::by_steps:
      return "mean by steps";
    case Merge::by_seconds:
      return "mean by seconds";
  }
  return "";
}

// Rows of docs/formats.md.
template <class Point>
std::string rows_of(std::span<const Field<Point>> fields, bool merges) {
  std::string rows = merges ? "| field | unit | merged | meaning |\n|---|---|---|---|\n"
                            : "| field | unit | meaning |\n|---|---|---|\n";
  for (const Field<Point>& field : fields) {
    rows += fmt::format("| `{}`{} | {} | {}{} |\n", field.name, field.writer == WrittenBy::first_rank ? " *" : "",
                        field.unit, merges ? fmt::format("{} | ", text_of(field.merge)) : "", field.meaning);
  }
  return rows;
}

template <class Texts>
std::string rows_of_texts(const Texts& texts, const char* between) {
  std::string rows;
  for (const auto& text : texts) {
    rows += fmt::format("| `{}` |{} {} |\n", text.name, between, text.meaning);
  }
  return rows;
}

TEST(Fields, the_page_of_formats_has_every_one) {
  const std::string page = read_file(std::string(TANDEM_SOURCE_DIR) + "/docs/formats.md");
  const std::string texts = "| field | meaning |\n|---|---|\n";
  const std::string tables[] = {rows_of<TrainPoint>(kTrainFields, true),
                                rows_of<ValidPoint>(kValidFields, false) + rows_of_texts(kValidTexts, " text |"),
                                texts + rows_of_texts(kSampleTexts, ""),
                                texts + rows_of_texts(kEventTexts, ""),
                                rows_of<SetupPoint>(kSetupFields, false) + rows_of_texts(kSetupTexts, " text |"),
                                rows_of<ProbePoint>(kProbeFields, true) + rows_of_texts(kProbeTexts, " text | last |")};
  for (const std::string& table : tables) {
    EXPECT_NE(page.find("\n\n" + table + "\n"), std::string::npos) << "the page has no such table:\n" << table;
  }
}

TEST(Fields, what_is_measured_here_is_known) {
  const Record record = ProbeSet({.run = memory_directory(), .interface = "lo"}).sample();
  EXPECT_GT(record.fields.size(), 10U);
  for (const auto& [name, value] : record.fields) {
    EXPECT_TRUE(testing::is_known_field("probe", name)) << name;
  }
}

TEST(Fields, rules_of_names_that_are_in_no_table) {
  EXPECT_EQ(merge_rule("probe", "net.eth0.100.sent_bytes"), Merge::sum) << "as network_sent_bytes";
  EXPECT_EQ(merge_rule("probe", "net.eth0.link_bits_per_second"), Merge::last);
  EXPECT_EQ(merge_rule("train", "new_seconds"), Merge::sum);
  EXPECT_EQ(merge_rule("train", "new"), Merge::last);
}

// Windows of unequal steps, tokens and seconds. Some of the losses are not finite.
Record window(int64_t step, double steps, std::mt19937_64& random) {
  const auto draw = [&](double high) { return std::uniform_real_distribution<double>(0.1 * high, high)(random); };
  TrainPoint p;
  p.step = step;
  p.steps = steps;
  p.loss = step % 70 == 0 ? kUnknown : draw(5);
  p.nll = draw(4), p.accuracy = draw(1), p.learning_rate = draw(1e-3), p.gradient_norm = draw(2);
  p.clipped_gradient_norm = draw(1), p.epoch = draw(3);
  p.pairs = steps * draw(100), p.source_tokens = steps * draw(3000), p.target_tokens = steps * draw(3000);
  p.compute_seconds = draw(9), p.communication_seconds = draw(3), p.data_seconds = draw(1), p.other_seconds = draw(1);
  p.transfer_seconds = draw(4), p.idle_seconds = draw(1), p.validation_seconds = draw(5),
  p.checkpoint_seconds = draw(2);
  p.flops = draw(1e18), p.rows = std::floor(draw(1e6)), p.dead_rows = std::floor(draw(1e4)), p.sent_bytes = draw(1e9);
  p.received_bytes = draw(1e9), p.skipped_steps = std::floor(draw(3)), p.elapsed_seconds = draw(1e5);
  p.peak_memory_bytes = draw(1e10);
  return train_record(p, true);
}

TEST(Fields, a_run_merges_to_the_same_curve_on_disk_and_while_it_is_read) {
  const TemporaryDirectory directory(memory_directory());
  const std::filesystem::path whole = directory / "0.jsonl", once = directory / "1.jsonl",
                              twice = directory / "2.jsonl";
  constexpr size_t kWindows = 256;
  std::mt19937_64 random(3);
  {
    std::ofstream file(whole);
    int64_t step = 0;
    for (size_t i = 0; i < kWindows; ++i) {
      const auto steps = static_cast<int64_t>(1 + random() % 20);
      step += steps;
      file << to_json(window(step, static_cast<double>(steps), random)) << "\n";
    }
  }
  thin({whole}, once);
  thin({once}, twice);
  const std::pair<std::filesystem::path, size_t> thinned[] = {{once, kWindows / 2}, {twice, kWindows / 4}};
  for (const auto& [path, points] : thinned) {
    // Reading merges neighbours whenever there are 2 * `points` of them.
    std::vector<TrainPoint> read = read_rank(whole).train;
    for (; read.size() > points; read.resize(read.size() / 2)) {
      for (size_t i = 0; i < read.size() / 2; ++i) {
        read[i] = merged(read[2 * i], read[2 * i + 1]);
      }
    }
    const std::vector<TrainPoint> on_disk = read_rank(path).train;
    ASSERT_EQ(on_disk.size(), points);
    for (size_t i = 0; i < points; ++i) {
      EXPECT_EQ(on_disk[i].step, read[i].step);
      EXPECT_NEAR(on_disk[i].other_seconds / read[i].other_seconds, 1, 1e-9);
      for (const Field<TrainPoint>& field : kTrainFields) {
        if (field.member != nullptr) {
          const double a = on_disk[i].*field.member, b = read[i].*field.member;
          EXPECT_NEAR(a, b, 1e-12 * std::fabs(b)) << field.name << " at step " << read[i].step;
        }
      }
    }
  }
  EXPECT_EQ(read_rank(whole, 0, kWindows).train.size(), kWindows / 2) << "merged as the file of half the records";
}

TEST(Fields, losses_are_means_over_target_tokens) {
  TrainPoint few, many;
  few.steps = many.steps = 10;
  few.target_tokens = 1000, few.nll = 4, few.peak_memory_bytes = 2e9;
  many.target_tokens = 3000, many.nll = 2, many.peak_memory_bytes = 1e9;
  EXPECT_EQ(merged(few, many).nll, 2.5);
  EXPECT_EQ(merged(few, many).target_tokens, 4000);
  EXPECT_EQ(merged(few, many).peak_memory_bytes, 2e9) << "the most, not the last";
}

TEST(Fields, other_ranks_write_what_is_their_own) {
  TrainPoint point;
  point.steps = 4, point.compute_seconds = 2, point.pairs = 40, point.dead_rows = 3, point.nll = 1;
  const Record first = train_record(point, true), other = train_record(point, false);
  EXPECT_EQ(first.number("pairs"), 10) << "a mean a step";
  EXPECT_EQ(first.number("steps_per_second"), 2);
  EXPECT_TRUE(std::isnan(*first.number("loss"))) << "the first rank writes a loss that is not finite";
  EXPECT_EQ(first.number("records"), std::nullopt);
  for (const Record& record : {first, other}) {
    EXPECT_EQ(record.number("dead_rows"), 3);
    EXPECT_EQ(record.number("step_seconds"), 2);
  }
  for (const char* name : {"nll", "loss", "pairs", "steps_per_second", "epoch"}) {
    EXPECT_EQ(other.number(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace tandem::observe
