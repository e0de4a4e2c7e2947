#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/human.h"
#include "preflight/prediction.h"

namespace tandem::preflight {

namespace {

using Json = nlohmann::ordered_json;

double most_sent(const Measurements& m) {
  double most = 0;
  for (const RankMeasurements& rank : m.ranks) {
    most = std::max({most, rank.sent, rank.received});
  }
  return most;
}

std::string ranks_text(const Measurements& m) {
  std::string text = "Workers, all computing at once\n";
  for (const RankMeasurements& r : m.ranks) {
    text += fmt::format("  rank {} on {}{}: {}, matrix products {}{}, memory {} of {} free, disk {} free\n", r.rank,
                        r.host, r.address.empty() ? "" : fmt::format(" ({} on {})", r.address, r.interface), r.device,
                        flops_text(r.product_flops), r.clock_mhz > 0 ? fmt::format(" at {:g} MHz", r.clock_mhz) : "",
                        human_bytes(r.memory_free), human_bytes(r.memory_total), human_bytes(r.disk_free));
  }
  return text + fmt::format("  checkpoints to come: {:g} of {} = {} on each host's disk\n", m.checkpoints,
                            human_bytes(m.checkpoint_bytes), human_bytes(m.checkpoints * m.checkpoint_bytes));
}

std::string links_text(const Measurements& m) {
  std::string text;
  for (const Link& l : m.links) {
    const std::string from = host_of(m, l.from), to = host_of(m, l.to);
    text += fmt::format("  {} -> {}: {}\n  {} -> {}: {}\n", from, to, link_sentence(l.there), to, from,
                        link_sentence(l.back));
    text += fmt::format("  {} <-> {}: round trip {}, clock of {} {} {} (within {})\n", from, to,
                        seconds_text(l.round_trip), to, seconds_text(std::fabs(l.clock_offset)),
                        l.clock_offset >= 0 ? "ahead" : "behind", seconds_text(l.clock_error));
  }
  if (m.ranks.size() > 1) {
    text += fmt::format("  all at once: gradients are added up at {}, {} a message{}\n",
                        rate_text(m.network.bytes_per_second), seconds_text(m.network.message_seconds),
                        m.network.busy_bytes_per_second < 0.9 * m.network.bytes_per_second
                            ? fmt::format("; at {} while all compute", rate_text(m.network.busy_bytes_per_second))
                            : "");
  }
  return text.empty() ? "" : "Links\n" + text;
}

std::string prediction_text(const Measurements& m, const Prediction& p) {
  std::string text = "Prediction\n";
  text += fmt::format("  a step: {} = {} computing + {} for the network (which alone would take {})\n",
                      seconds_text(p.step.step), seconds_text(p.step.compute), seconds_text(p.step.exposed),
                      seconds_text(p.step.communication));
  text += fmt::format("  bytes a step: {} each way and worker\n", human_bytes(most_sent(m)));
  text += fmt::format("  {} target tokens/s, {} + {} tokens a step, {} parameters\n", human_count(p.tokens_per_second),
                      grouped(std::llround(m.source_tokens)), grouped(std::llround(m.target_tokens)),
                      grouped(std::llround(m.parameters)));
  if (p.steps > 0) {
    text += fmt::format("  {} steps: {}{}, without validations and checkpoints\n", grouped(std::llround(p.steps)),
                        human_duration(p.seconds), std::isfinite(p.cost) ? fmt::format(", cost {:.2f}", p.cost) : "");
  }
  text += fmt::format("  {}\n", p.sentence);
  text += fmt::format("What if\n  {:<48}{:>12}{:>18}{:>8}\n", "", "step", "target tokens/s", "gain");
  for (const WhatIf& w : p.what_if) {
    text += fmt::format("  {:<48}{:>12}{:>18}{:>8}\n", w.name, seconds_text(w.step), human_count(w.tokens_per_second),
                        fmt::format("{:.2f} x", w.tokens_per_second / p.tokens_per_second));
  }
  return text;
}

Json rank_json(const RankMeasurements& r) {
  return {{"rank", r.rank},
          {"host", r.host},
          {"address", r.address},
          {"interface", r.interface},
          {"device", r.device},
          {"gpus", r.gpus},
          {"clock_mhz", r.clock_mhz > 0 ? Json(r.clock_mhz) : Json()},
          {"memory_free_bytes", r.memory_free},
          {"memory_total_bytes", r.memory_total},
          {"product_flops", r.product_flops},
          {"disk", r.disk},
          {"disk_free_bytes", r.disk_free},
          {"sent_bytes_per_step", r.sent},
          {"received_bytes_per_step", r.received}};
}

}  // namespace

std::string preflight_text(const Measurements& m, const Prediction& p) {
  std::string text = ranks_text(m) + links_text(m) + prediction_text(m, p);
  for (const std::string& warning : p.warnings) {
    text += "warning: " + warning + "\n";
  }
  return text + fmt::format("measured in {}\n", seconds_text(m.seconds));
}

std::string preflight_json(const Measurements& m, const Prediction& p) {
  Json ranks = Json::array(), links = Json::array(), what_if = Json::array();
  for (const RankMeasurements& r : m.ranks) {
    ranks.push_back(rank_json(r));
  }
  for (const Link& l : m.links) {
    links.push_back({{"from", host_of(m, l.from)},
                     {"to", host_of(m, l.to)},
                     {"bytes_per_second", l.there},
                     {"back_bytes_per_second", l.back},
                     {"round_trip_seconds", l.round_trip},
                     {"clock_offset_seconds", l.clock_offset},
                     {"clock_error_seconds", l.clock_error}});
  }
  for (const WhatIf& w : p.what_if) {
    what_if.push_back({{"name", w.name}, {"step_seconds", w.step}, {"target_tokens_per_second", w.tokens_per_second}});
  }
  const Json json{{"version", 1},
                  {"step_seconds", p.step.step},
                  {"compute_seconds", p.step.compute},
                  {"communication_seconds", p.step.communication},
                  {"exposed_seconds", p.step.exposed},
                  {"target_tokens_per_second", p.tokens_per_second},
                  {"steps", p.steps},
                  {"seconds", p.seconds},
                  {"cost", p.cost},
                  {"bottleneck", p.bottleneck},
                  {"sentence", p.sentence},
                  {"parameters", m.parameters},
                  {"source_tokens", m.source_tokens},
                  {"target_tokens", m.target_tokens},
                  {"sums",
                   {{"message_seconds", m.network.message_seconds},
                    {"bytes_per_second", m.network.bytes_per_second},
                    {"busy_bytes_per_second", m.network.busy_bytes_per_second},
                    {"lost_seconds_per_byte", m.network.lost_per_byte}}},
                  {"what_if", what_if},
                  {"ranks", ranks},
                  {"links", links},
                  {"checkpoint_bytes", m.checkpoint_bytes},
                  {"checkpoints", m.checkpoints},
                  {"warnings", p.warnings},
                  {"problem", p.problem},
                  {"measured_seconds", m.seconds}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tandem::preflight
