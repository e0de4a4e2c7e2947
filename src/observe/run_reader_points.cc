#include "observe/run_reader_points.h"

#include <algorithm>
#include <cmath>

namespace tandem {

namespace {

constexpr double kLargest = 1e15;       // of anything that is summed but FLOPs
constexpr double kSmallest = 1e-15;     // but 0
constexpr double kMostFlops = 1e24;     // of a stretch
constexpr double kMostScore = 100.001;  // percent, and what rounding adds

template <class Point>
struct Named {
  std::string_view name;
  double Point::*value;
};
constexpr Named<TrainPoint> kTrainFields[] = {
    {"steps", &TrainPoint::steps},
    {"loss", &TrainPoint::loss},
    {"nll", &TrainPoint::nll},
    {"accuracy", &TrainPoint::accuracy},
    {"learning_rate", &TrainPoint::learning_rate},
    {"gradient_norm", &TrainPoint::gradient_norm},
    {"epoch", &TrainPoint::epoch},
    {"pairs", &TrainPoint::pairs},
    {"source_tokens", &TrainPoint::source_tokens},
    {"target_tokens", &TrainPoint::target_tokens},
    {"compute_seconds", &TrainPoint::compute_seconds},
    {"communication_seconds", &TrainPoint::communication_seconds},
    {"transfer_seconds", &TrainPoint::transfer_seconds},
    {"data_seconds", &TrainPoint::data_seconds},
    {"idle_seconds", &TrainPoint::idle_seconds},
    {"validation_seconds", &TrainPoint::validation_seconds},
    {"checkpoint_seconds", &TrainPoint::checkpoint_seconds},
    {"sent_bytes", &TrainPoint::sent_bytes},
    {"received_bytes", &TrainPoint::received_bytes},
    {"flops", &TrainPoint::flops},
    {"rows", &TrainPoint::rows},
    {"dead_rows", &TrainPoint::dead_rows},
    {"skipped_steps", &TrainPoint::skipped_steps},
    {"elapsed_seconds", &TrainPoint::elapsed_seconds},
    {"peak_memory_bytes", &TrainPoint::peak_memory_bytes},
    {"records", &TrainPoint::records},
    {"unfinite", &TrainPoint::unfinite},
};
constexpr double TrainPoint::*kMeansInFile[] = {&TrainPoint::pairs, &TrainPoint::source_tokens,
                                                &TrainPoint::target_tokens};
constexpr double TrainPoint::*kTrainSums[] = {&TrainPoint::pairs,
                                              &TrainPoint::source_tokens,
                                              &TrainPoint::target_tokens,
                                              &TrainPoint::compute_seconds,
                                              &TrainPoint::communication_seconds,
                                              &TrainPoint::transfer_seconds,
                                              &TrainPoint::data_seconds,
                                              &TrainPoint::other_seconds,
                                              &TrainPoint::idle_seconds,
                                              &TrainPoint::validation_seconds,
                                              &TrainPoint::checkpoint_seconds,
                                              &TrainPoint::sent_bytes,
                                              &TrainPoint::received_bytes,
                                              &TrainPoint::rows,
                                              &TrainPoint::dead_rows,
                                              &TrainPoint::skipped_steps};

constexpr Named<ProbePoint> kProbeMeans[] = {
    {"gpu_power_watts", &ProbePoint::gpu_power_watts},
    {"gpu_sm_clock_mhz", &ProbePoint::gpu_sm_clock_mhz},
    {"gpu_memory_clock_mhz", &ProbePoint::gpu_memory_clock_mhz},
    {"gpu_temperature_celsius", &ProbePoint::gpu_temperature_celsius},
    {"gpu_utilisation_percent", &ProbePoint::gpu_utilisation_percent},
    {"cpu_busy", &ProbePoint::cpu_busy},
    {"load", &ProbePoint::load},
};
constexpr Named<ProbePoint> kProbeLast[] = {
    {"gpu_power_limit_watts", &ProbePoint::gpu_power_limit_watts},
    {"gpu_memory_used_bytes", &ProbePoint::gpu_memory_used_bytes},
    {"gpu_memory_total_bytes", &ProbePoint::gpu_memory_total_bytes},
    {"cpu_cores", &ProbePoint::cpu_cores},
    {"memory_available_bytes", &ProbePoint::memory_available_bytes},
    {"memory_total_bytes", &ProbePoint::memory_total_bytes},
    {"disk_free_bytes", &ProbePoint::disk_free_bytes},
    {"disk_total_bytes", &ProbePoint::disk_total_bytes},
    {"process_memory_bytes", &ProbePoint::process_memory_bytes},
    {"process_threads", &ProbePoint::process_threads},
    {"network_link_bits_per_second", &ProbePoint::network_link_bits_per_second},
};
constexpr Named<ProbePoint> kProbeSums[] = {
    {"network_received_bytes", &ProbePoint::network_received_bytes},
    {"network_sent_bytes", &ProbePoint::network_sent_bytes},
    {"network_received_packets", &ProbePoint::network_received_packets},
    {"network_sent_packets", &ProbePoint::network_sent_packets},
    {"network_received_dropped", &ProbePoint::network_received_dropped},
    {"network_sent_dropped", &ProbePoint::network_sent_dropped},
    {"disk_written_bytes", &ProbePoint::disk_written_bytes},
    {"process_written_bytes", &ProbePoint::process_written_bytes},
    {"process_cpu_seconds", &ProbePoint::process_cpu_seconds},
    {"probe_cpu_seconds", &ProbePoint::probe_cpu_seconds},
    {"gpu_throttled_seconds", &ProbePoint::gpu_throttled_seconds},
    {"gpu_capped_seconds", &ProbePoint::gpu_capped_seconds},
};

constexpr Named<SetupPoint> kSetupFields[] = {
    {"schema", &SetupPoint::schema},
    {"rank", &SetupPoint::rank},
    {"ranks", &SetupPoint::ranks},
    {"node", &SetupPoint::node},
    {"nodes", &SetupPoint::nodes},
    {"parameters", &SetupPoint::parameters},
    {"sharded", &SetupPoint::sharded},
    {"planned_sent_bytes", &SetupPoint::planned_sent_bytes},
    {"planned_received_bytes", &SetupPoint::planned_received_bytes},
};

// Mean by weight of what is finite.
double mean_of(double a, double weight_a, double b, double weight_b) {
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return std::isfinite(a) ? a : b;
  }
  const double weight = weight_a + weight_b;
  return weight > 0 ? a * (weight_a / weight) + b * (weight_b / weight) : b;
}

void take_fields(TrainPoint& point, const MetricsLine& line) {
  size_t next = 0;  // records name their fields in the table's order
  for (const MetricsLine::Field& field : line.fields()) {
    for (size_t tried = 0; tried < std::size(kTrainFields); ++tried) {
      const Named<TrainPoint>& known = kTrainFields[(next + tried) % std::size(kTrainFields)];
      if (known.name == field.name) {
        point.*known.value = field.number.value_or(kUnknown);
        next += tried + 1;
        break;
      }
    }
  }
}

// A record of a thinned file says how many records it stands for.
void take_counts(TrainPoint& point, bool has_loss) {
  const bool finite = std::isfinite(point.nll) && std::isfinite(point.loss);
  point.records = std::max(plausible(point.records), 1.0);
  point.unfinite = std::clamp(plausible(point.unfinite), has_loss && !finite ? 1.0 : 0.0, point.records);
}

// A stretch after a resume begins between two records, so its own count or rate knows its steps better than the
// difference.
double steps_of(const TrainPoint& point, double rate, int64_t previous) {
  const auto step = static_cast<double>(point.step);
  for (const double measured : {point.steps, std::round(plausible(rate) * point.step_seconds())}) {
    if (measured >= 1 && measured <= step) {
      return measured;
    }
  }
  return std::max(step - static_cast<double>(previous), 0.0);
}

}  // namespace

double plausible(double value) { return value >= kSmallest && value <= kLargest ? value : 0; }
double plausible_or_unknown(double value) { return value >= 0 && value <= kLargest ? value : kUnknown; }

std::string kept_text(std::string_view text, size_t longest) {
  if (text.size() <= longest) {
    return std::string(text);
  }
  size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(text.substr(0, end)) + "...";
}

TrainPoint train_point(const MetricsLine& line, int64_t previous) {
  TrainPoint point;
  point.step = line.step();
  point.time = line.time();
  take_fields(point, line);
  const bool has_loss = line.has("nll") || line.has("loss");
  for (double TrainPoint::*sum : kTrainSums) {
    point.*sum = plausible(point.*sum);
  }
  point.flops = point.flops >= 0 && point.flops <= kMostFlops ? point.flops : 0;
  point.elapsed_seconds = plausible_or_unknown(point.elapsed_seconds);
  point.other_seconds = std::max(plausible(line.number("step_seconds", 0)) - point.step_seconds(), 0.0);
  point.steps = steps_of(point, line.number("steps_per_second", 0), previous);
  for (double TrainPoint::*mean : kMeansInFile) {
    point.*mean = plausible(point.*mean * point.steps);
  }
  take_counts(point, has_loss);
  return point;
}

ValidPoint valid_point(const MetricsLine& line) {
  ValidPoint point{.step = line.step(), .time = line.time()};
  point.nll = line.number("nll", kUnknown);
  point.train_nll = line.number("train_nll", kUnknown);
  point.accuracy = line.number("accuracy", kUnknown);
  point.bleu = line.number("bleu", kUnknown);
  point.chrf = line.number("chrf", kUnknown);
  const double low = line.number("bleu_low", kUnknown), high = line.number("bleu_high", kUnknown);
  if (low >= 0 && low <= point.bleu && point.bleu <= high && high <= kMostScore) {
    point.bleu_low = low;
    point.bleu_high = high;
  }
  point.seconds = plausible_or_unknown(line.number("seconds", kUnknown));
  point.elapsed_seconds = plausible_or_unknown(line.number("elapsed_seconds", kUnknown));
  return point;
}

SetupPoint setup_point(const MetricsLine& line) {
  SetupPoint point;
  point.step = line.step();
  point.time = line.time();
  for (const auto& [name, value] : kSetupFields) {
    point.*value = plausible_or_unknown(line.number(name, kUnknown));
  }
  const double peak = line.number("peak_flops", kUnknown);
  point.peak_flops = peak > 0 && peak <= kMostFlops ? peak : kUnknown;
  point.host = kept_text(line.text("host"), kLongestName);
  point.device = kept_text(line.text("device"), kLongestName);
  point.backend = kept_text(line.text("backend"), kLongestName);
  point.precision = kept_text(line.text("precision"), kLongestName);
  point.wire = kept_text(line.text("wire"), kLongestName);
  point.interface = kept_text(line.text("interface"), kLongestName);
  point.version = kept_text(line.text("version"), kLongestName);
  return point;
}

ProbePoint probe_point(const MetricsLine& line) {
  ProbePoint point;
  point.step = line.step();
  point.time = line.time();
  point.seconds = plausible(line.number("seconds", 0));
  const auto take = [&](const auto& table) {
    for (const auto& [name, value] : table) {
      point.*value = plausible_or_unknown(line.number(name, kUnknown));
    }
  };
  take(kProbeMeans);
  take(kProbeLast);
  take(kProbeSums);
  point.gpu_throttle = kept_text(line.text("gpu_throttle"), kLongestName);
  return point;
}

TrainPoint merged(const TrainPoint& first, const TrainPoint& second) {
  TrainPoint both = second;
  for (double TrainPoint::*mean : {&TrainPoint::loss, &TrainPoint::nll, &TrainPoint::accuracy}) {
    both.*mean = mean_of(first.*mean, first.steps, second.*mean, second.steps);
  }
  for (double TrainPoint::*sum : kTrainSums) {
    both.*sum += first.*sum;
  }
  both.flops += first.flops;
  both.steps += first.steps;
  both.records += first.records;
  both.unfinite += first.unfinite;
  return both;
}

ProbePoint merged(const ProbePoint& first, const ProbePoint& second) {
  ProbePoint both = second;
  for (const auto& [name, mean] : kProbeMeans) {
    both.*mean = mean_of(first.*mean, first.seconds, second.*mean, second.seconds);
  }
  for (const auto& [name, last] : kProbeLast) {
    both.*last = std::isnan(second.*last) ? first.*last : second.*last;
  }
  for (const auto& [name, sum] : kProbeSums) {
    both.*sum = std::isnan(first.*sum) ? second.*sum : std::isnan(second.*sum) ? first.*sum : first.*sum + second.*sum;
  }
  both.seconds += first.seconds;
  return both;
}

}  // namespace tandem
