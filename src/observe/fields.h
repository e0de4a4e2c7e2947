// The records of a run's metrics (metrics/<rank>.jsonl) and all their fields. This is the one place that knows a
// field's name, its unit, what it means and how the values of two neighbouring records become one; the trainer's
// writer, the thinning of old files, the reader, Prometheus and the tables in docs/formats.md follow it. A new metric
// needs a member and a row here, and code that measures it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "observe/metrics.h"

namespace tandem::observe {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // not in the record, or measured as NaN

// The steps after the previous record, up to and including `step`. Sums are 0 if they are not recorded.
struct TrainPoint {
  int64_t step = 0;
  double time = 0;  // Unix seconds at the end
  double loss = kUnknown, nll = kUnknown, accuracy = kUnknown;
  double learning_rate = kUnknown, gradient_norm = kUnknown, clipped_gradient_norm = kUnknown, epoch = kUnknown;
  double pairs = 0, source_tokens = 0, target_tokens = 0;  // sums here, means per step in the file
  double steps = 0;
  double compute_seconds = 0, communication_seconds = 0, data_seconds = 0;
  double other_seconds = 0;  // rest of whole steps, beyond the three parts above; not in the file
  double transfer_seconds = 0, idle_seconds = 0, validation_seconds = 0, checkpoint_seconds = 0;
  double flops = 0, rows = 0, dead_rows = 0, sent_bytes = 0, received_bytes = 0, skipped_steps = 0;
  double elapsed_seconds = kUnknown, peak_memory_bytes = kUnknown;
  double records = 1, unfinite = 0;

  double step_seconds() const { return compute_seconds + communication_seconds + data_seconds + other_seconds; }
  double pause_seconds() const { return validation_seconds + checkpoint_seconds; }
  double dead_row_share() const { return rows > 0 ? std::min(1.0, dead_rows / rows) : kUnknown; }
};

struct ValidPoint {
  int64_t step = 0;
  double time = 0;
  double nll = kUnknown, accuracy = kUnknown, train_nll = kUnknown;
  double bleu = kUnknown, bleu_low = kUnknown, bleu_high = kUnknown, chrf = kUnknown;
  double seconds = kUnknown, elapsed_seconds = kUnknown;
};

struct SamplePoint {
  int64_t step = 0;
  int64_t index = 0;
  std::string source, reference, translation;
};

struct EventPoint {
  int64_t step = 0;
  double time = 0;
  std::string event, details;
};

// The setup of a rank; written at every start.
struct SetupPoint {
  int64_t step = 0;
  double time = 0;
  double schema = kUnknown, rank = kUnknown, ranks = kUnknown, node = kUnknown, nodes = kUnknown;
  double parameters = kUnknown, sharded = kUnknown, peak_flops = kUnknown;
  double planned_sent_bytes = kUnknown, planned_received_bytes = kUnknown;
  std::string host, device, backend, precision, wire, interface, version;
};

// What the probes of a rank's host measured during the `seconds` before `time`.
struct ProbePoint {
  int64_t step = 0;
  double time = 0;
  double seconds = 0;
  double gpu_power_watts = kUnknown, gpu_power_limit_watts = kUnknown, gpu_sm_clock_mhz = kUnknown,
         gpu_memory_clock_mhz = kUnknown, gpu_temperature_celsius = kUnknown, gpu_memory_used_bytes = kUnknown,
         gpu_memory_total_bytes = kUnknown, gpu_utilisation_percent = kUnknown, gpu_performance_state = kUnknown,
         gpu_throttled_seconds = kUnknown, gpu_capped_seconds = kUnknown;
  double cpu_busy = kUnknown, cpu_cores = kUnknown, load = kUnknown;
  double memory_used_bytes = kUnknown, memory_available_bytes = kUnknown, memory_total_bytes = kUnknown;
  double disk_free_bytes = kUnknown, disk_total_bytes = kUnknown, disk_written_bytes = kUnknown;
  double network_received_bytes = kUnknown, network_received_packets = kUnknown, network_received_dropped = kUnknown,
         network_sent_bytes = kUnknown, network_sent_packets = kUnknown, network_sent_dropped = kUnknown,
         network_link_bits_per_second = kUnknown;
  double process_cpu_seconds = kUnknown, process_memory_bytes = kUnknown, process_threads = kUnknown,
         process_written_bytes = kUnknown, probe_cpu_seconds = kUnknown;
  std::string gpu_throttle;
};

// How the values of two neighbouring records are merged. A finite value wins over one that is not.
enum class Merge : uint8_t {
  last,  // the later value
  sum,
  most,       // the larger value
  by_tokens,  // mean, weighted by target tokens
  by_steps,   // mean per step, weighted by steps; points hold the sum
  by_seconds  // mean, weighted by seconds (step_seconds in a train record)
};

constexpr double kMostBelieved = 1e15, kMostFlops = 1e24, kAnyNumber = std::numeric_limits<double>::infinity();

// Whether a reader believes an amount. A tiny one, unless it is 0, would give rates that are not finite.
inline bool believable(double value, double most = kMostBelieved) {
  return most == kAnyNumber || value == 0 || (value >= 1e-15 && value <= most);
}

enum class WrittenBy : uint8_t { every_rank, first_rank, merging };  // merging: the field is in merged records only
constexpr WrittenBy kFirst = WrittenBy::first_rank;

template <class Point>
struct Field {
  std::string_view name;
  const char* unit;
  Merge merge;            // `last` in kinds of records that are never merged
  double Point::*member;  // nullptr: written, not read
  const char* meaning;
  double most = kMostBelieved;  // largest value that a reader believes; kAnyNumber: no limit
  WrittenBy writer = WrittenBy::every_rank;
  double (*derived)(const Point&) = nullptr;  // the value of a field without a member

  double of(const Point& p) const { return derived != nullptr ? derived(p) : member != nullptr ? p.*member : kUnknown; }
};

struct TextField {
  std::string_view name;
  const char* meaning;
};

inline constexpr Field<TrainPoint> kTrainFields[] = {
    {"loss", "nats", Merge::by_tokens, &TrainPoint::loss,
     "label-smoothed cross-entropy a target token of the global batches, with dropout", kAnyNumber, kFirst},
    {"nll", "nats", Merge::by_tokens, &TrainPoint::nll, "the same without smoothing", kAnyNumber, kFirst},
    {"accuracy", "share", Merge::by_tokens, &TrainPoint::accuracy, "target tokens that the model finds most likely",
     kAnyNumber, kFirst},
    {"learning_rate", "", Merge::last, &TrainPoint::learning_rate, "of the last step", kAnyNumber, kFirst},
    {"gradient_norm", "", Merge::last, &TrainPoint::gradient_norm, "of the last step, before clipping", kAnyNumber,
     kFirst},
    {"clipped_gradient_norm", "", Merge::last, &TrainPoint::clipped_gradient_norm, "the same after clipping",
     kAnyNumber, kFirst},
    {"epoch", "", Merge::last, &TrainPoint::epoch, "epochs done, with their fraction", kAnyNumber, kFirst},
    {"steps_per_second", "1/s", Merge::by_seconds, nullptr, "validations and checkpoints not counted", kAnyNumber,
     kFirst, [](const TrainPoint& p) { return p.steps / p.step_seconds(); }},
    {"source_tokens_per_second", "1/s", Merge::by_seconds, nullptr, "validations and checkpoints not counted",
     kAnyNumber, kFirst, [](const TrainPoint& p) { return p.source_tokens / p.step_seconds(); }},
    {"target_tokens_per_second", "1/s", Merge::by_seconds, nullptr, "validations and checkpoints not counted",
     kAnyNumber, kFirst, [](const TrainPoint& p) { return p.target_tokens / p.step_seconds(); }},
    {"pairs", "a step", Merge::by_steps, &TrainPoint::pairs, "sentence pairs of the global batch", kMostBelieved,
     kFirst},
    {"source_tokens", "a step", Merge::by_steps, &TrainPoint::source_tokens, "of the global batch", kMostBelieved,
     kFirst},
    {"target_tokens", "a step", Merge::by_steps, &TrainPoint::target_tokens, "of the global batch", kMostBelieved,
     kFirst},
    {"steps", "", Merge::sum, &TrainPoint::steps, "optimizer steps, skipped ones counted"},
    {"step_seconds", "s", Merge::sum, nullptr, "whole steps", kAnyNumber, WrittenBy::every_rank,
     [](const TrainPoint& p) { return p.step_seconds(); }},
    {"compute_seconds", "s", Merge::sum, &TrainPoint::compute_seconds, "the part of the steps that waits for nothing"},
    {"communication_seconds", "s", Merge::sum, &TrainPoint::communication_seconds,
     "the part that waits for the other ranks or the network: what compute does not hide"},
    {"transfer_seconds", "s", Merge::sum, &TrainPoint::transfer_seconds,
     "what transfers took, hidden behind compute or not"},
    {"data_seconds", "s", Merge::sum, &TrainPoint::data_seconds, "the part that waits for data"},
    {"idle_seconds", "s", Merge::sum, &TrainPoint::idle_seconds, "between two steps, by the device's clock"},
    {"validation_seconds", "s", Merge::sum, &TrainPoint::validation_seconds, "validations, beside the steps"},
    {"checkpoint_seconds", "s", Merge::sum, &TrainPoint::checkpoint_seconds,
     "how long training stood still for checkpoints"},
    {"flops", "FLOP", Merge::sum, &TrainPoint::flops, "of the model, for this rank's tokens", kMostFlops},
    {"rows", "", Merge::sum, &TrainPoint::rows, "rows of both sides that this rank worked through"},
    {"dead_rows", "", Merge::sum, &TrainPoint::dead_rows, "those of them that hold no token"},
    {"sent_bytes", "bytes", Merge::sum, &TrainPoint::sent_bytes, "payload that this rank sent"},
    {"received_bytes", "bytes", Merge::sum, &TrainPoint::received_bytes, "payload that this rank received"},
    {"skipped_steps", "", Merge::sum, &TrainPoint::skipped_steps, "steps whose gradient was not finite"},
    {"elapsed_seconds", "s", Merge::last, &TrainPoint::elapsed_seconds, "training time of the run, over all starts"},
    {"peak_memory_bytes", "bytes", Merge::most, &TrainPoint::peak_memory_bytes,
     "the most memory that the process has used; not of a GPU"},
    {"records", "", Merge::sum, &TrainPoint::records, "records that a merged one stands for", kMostBelieved,
     WrittenBy::merging},
    {"unfinite", "", Merge::sum, &TrainPoint::unfinite, "those of them whose loss is not finite", kMostBelieved,
     WrittenBy::merging},
};

inline constexpr Field<ValidPoint> kValidFields[] = {
    {"nll", "nats", Merge::last, &ValidPoint::nll,
     "cross-entropy a target token, the end mark counted, without smoothing and dropout", kAnyNumber},
    {"perplexity", "", Merge::last, nullptr, "exp(nll)", kAnyNumber, WrittenBy::every_rank,
     [](const ValidPoint& p) { return std::exp(p.nll); }},
    {"accuracy", "share", Merge::last, &ValidPoint::accuracy, "target tokens that the model finds most likely",
     kAnyNumber},
    {"train_nll", "nats", Merge::last, &ValidPoint::train_nll, "nll of a fixed sample of training pairs", kAnyNumber},
    {"bleu", "0 to 100", Merge::last, &ValidPoint::bleu, "BLEU of the decoded text", kAnyNumber},
    {"bleu_low", "0 to 100", Merge::last, &ValidPoint::bleu_low,
     "lower end of BLEU's interval: 95 % of 1,000 resamplings of the sentences", kAnyNumber},
    {"bleu_high", "0 to 100", Merge::last, &ValidPoint::bleu_high, "upper end of the interval", kAnyNumber},
    {"chrf", "0 to 100", Merge::last, &ValidPoint::chrf, "chrF of the decoded text", kAnyNumber},
    {"seconds", "s", Merge::last, &ValidPoint::seconds, "the validation took"},
    {"elapsed_seconds", "s", Merge::last, &ValidPoint::elapsed_seconds, "training time of the run, over all starts"},
    {"too_long", "", Merge::last, nullptr, "pairs left out of the loss; absent if none is"},
};

inline constexpr TextField kValidTexts[] = {
    {"bleu_signature", "sacreBLEU's signature of the BLEU score"},
};

inline constexpr TextField kSampleTexts[] = {
    {"index", "number of the sample, from 0"},
    {"source", "sentence of the validation set"},
    {"reference", "its translation there"},
    {"translation", "the model's"},
};

inline constexpr TextField kEventTexts[] = {
    {"event", "`skipped`, `rollback`, `checkpoint failed` or `end`"},
    {"details", "for people"},
};

inline constexpr Field<SetupPoint> kSetupFields[] = {
    {"schema", "", Merge::last, &SetupPoint::schema, "1: this page"},
    {"rank", "", Merge::last, &SetupPoint::rank, "this rank"},
    {"ranks", "", Merge::last, &SetupPoint::ranks, "how many there are"},
    {"node", "", Merge::last, &SetupPoint::node, "the rank's host"},
    {"nodes", "", Merge::last, &SetupPoint::nodes, "how many hosts there are"},
    {"parameters", "", Merge::last, &SetupPoint::parameters, "of the model"},
    {"sharded", "0 or 1", Merge::last, &SetupPoint::sharded, "whether the optimizer is sharded over the ranks"},
    {"peak_flops", "FLOP/s", Merge::last, &SetupPoint::peak_flops,
     "of large matrix products, measured when the run starts", kMostFlops},
    {"planned_sent_bytes", "bytes", Merge::last, &SetupPoint::planned_sent_bytes,
     "payload that this rank sends for a usual step; with several ranks only"},
    {"planned_received_bytes", "bytes", Merge::last, &SetupPoint::planned_received_bytes, "payload that it receives"},
};

struct SetupText {
  std::string_view name;
  std::string SetupPoint::*member;
  const char* meaning;
};
inline constexpr SetupText kSetupTexts[] = {
    {"host", &SetupPoint::host, "name of the rank's host"},
    {"device", &SetupPoint::device, "the setting `device`"},
    {"backend", &SetupPoint::backend, "what computes"},
    {"precision", &SetupPoint::precision, "`f32` or `bf16`"},
    {"wire", &SetupPoint::wire, "type of the gradients that ranks exchange: `f64`, `f32` or `bf16`"},
    {"interface", &SetupPoint::interface, "network interface that the traffic takes"},
    {"version", &SetupPoint::version, "of the program"},
};

inline constexpr Field<ProbePoint> kProbeFields[] = {
    {"seconds", "s", Merge::sum, &ProbePoint::seconds, "that the record is about"},
    {"gpu_power_watts", "W", Merge::by_seconds, &ProbePoint::gpu_power_watts,
     "mean by the energy counter; of the moment if the GPU has none"},
    {"gpu_power_limit_watts", "W", Merge::last, &ProbePoint::gpu_power_limit_watts, "the limit enforced"},
    {"gpu_sm_clock_mhz", "MHz", Merge::by_seconds, &ProbePoint::gpu_sm_clock_mhz, "of the moment"},
    {"gpu_memory_clock_mhz", "MHz", Merge::by_seconds, &ProbePoint::gpu_memory_clock_mhz, "of the moment"},
    {"gpu_temperature_celsius", "°C", Merge::by_seconds, &ProbePoint::gpu_temperature_celsius, "of the moment"},
    {"gpu_memory_used_bytes", "bytes", Merge::last, &ProbePoint::gpu_memory_used_bytes, "by all processes"},
    {"gpu_memory_total_bytes", "bytes", Merge::last, &ProbePoint::gpu_memory_total_bytes, "that the GPU has"},
    {"gpu_utilisation_percent", "%", Merge::by_seconds, &ProbePoint::gpu_utilisation_percent,
     "time in which any kernel ran, waiting ones too: no measure of work"},
    {"gpu_performance_state", "", Merge::last, &ProbePoint::gpu_performance_state, "of the moment; 0 is the fastest"},
    {"gpu_throttled_seconds", "s", Merge::sum, &ProbePoint::gpu_throttled_seconds,
     "`seconds` if a slowdown, a thermal reason or the power brake is in `gpu_throttle`, else 0"},
    {"gpu_capped_seconds", "s", Merge::sum, &ProbePoint::gpu_capped_seconds,
     "`seconds` if `power_cap` is in `gpu_throttle`, else 0"},
    {"cpu_busy", "share", Merge::by_seconds, &ProbePoint::cpu_busy, "of the time of all cores"},
    {"cpu_cores", "", Merge::last, &ProbePoint::cpu_cores, "that the machine has"},
    {"load", "", Merge::by_seconds, &ProbePoint::load, "runnable threads, of the last minute"},
    {"memory_used_bytes", "bytes", Merge::last, &ProbePoint::memory_used_bytes, "of the machine"},
    {"memory_available_bytes", "bytes", Merge::last, &ProbePoint::memory_available_bytes, "of the machine"},
    {"memory_total_bytes", "bytes", Merge::last, &ProbePoint::memory_total_bytes, "of the machine"},
    {"disk_free_bytes", "bytes", Merge::last, &ProbePoint::disk_free_bytes, "of the run's filesystem"},
    {"disk_total_bytes", "bytes", Merge::last, &ProbePoint::disk_total_bytes, "of the run's filesystem"},
    {"disk_written_bytes", "bytes", Merge::sum, &ProbePoint::disk_written_bytes, "by all processes"},
    {"network_received_bytes", "bytes", Merge::sum, &ProbePoint::network_received_bytes,
     "of the run's interface, headers counted"},
    {"network_received_packets", "", Merge::sum, &ProbePoint::network_received_packets, "of the run's interface"},
    {"network_received_dropped", "", Merge::sum, &ProbePoint::network_received_dropped, "packets that were lost"},
    {"network_sent_bytes", "bytes", Merge::sum, &ProbePoint::network_sent_bytes,
     "of the run's interface, headers counted"},
    {"network_sent_packets", "", Merge::sum, &ProbePoint::network_sent_packets, "of the run's interface"},
    {"network_sent_dropped", "", Merge::sum, &ProbePoint::network_sent_dropped, "packets that were lost"},
    {"network_link_bits_per_second", "bit/s", Merge::last, &ProbePoint::network_link_bits_per_second,
     "speed that the driver of the run's interface states; absent if it knows none"},
    {"process_cpu_seconds", "s", Merge::sum, &ProbePoint::process_cpu_seconds, "CPU time of the trainer"},
    {"process_memory_bytes", "bytes", Merge::last, &ProbePoint::process_memory_bytes, "of the trainer"},
    {"process_threads", "", Merge::last, &ProbePoint::process_threads, "of the trainer"},
    {"process_written_bytes", "bytes", Merge::sum, &ProbePoint::process_written_bytes, "by the trainer"},
    {"probe_cpu_seconds", "s", Merge::sum, &ProbePoint::probe_cpu_seconds, "CPU time that measuring itself took"},
};

inline constexpr TextField kProbeTexts[] = {
    {"gpu_throttle",
     "reasons why the GPU is slower than it could be, separated by commas: `idle`, "
     "`application_clocks`, `power_cap`, `hardware_slowdown`, `sync_boost`, `software_thermal`, `hardware_thermal`, "
     "`power_brake`, `display_clock`"},
    {"gpu_name", "in the first record of a start"},
    {"gpu_uuid", "in the first record of a start"},
};

// The merge rule of a field of a train or probe record. net.<interface>.<...> has the rule of network_<...>. A field
// that this version does not know is a sum if its name ends in _seconds, else the later value counts.
Merge merge_rule(std::string_view kind, std::string_view name);

// Merges two neighbouring stretches, with the second's step and time; `records` counts the merged records.
TrainPoint merged(const TrainPoint& first, const TrainPoint& second);
ProbePoint merged(const ProbePoint& first, const ProbePoint& second);
// The same for two records of kind "train" or "probe" as in a file, with fields that this version does not know.
Record merged(const Record& first, const Record& second);

// All points, merged into one.
TrainPoint total(std::span<const TrainPoint> points);

// Weight of a point in a mean loss: target tokens, or steps if the tokens are not recorded.
inline double loss_weight(const TrainPoint& p) { return p.target_tokens > 0 ? p.target_tokens : p.steps; }

// The record "train" of a stretch of steps, with its last step and the present time.
Record train_record(const TrainPoint& point, bool first_rank);

}  // namespace tandem::observe
