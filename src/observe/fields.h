// What the records of a run say, as points of series (docs/formats.md has the records).
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace tandem {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // not in the record, or measured as NaN

// A stretch of steps, up to and with `step`. Sums are over the stretch.
struct TrainPoint {
  int64_t step = 0;
  double time = 0;      // Unix seconds of its end
  double steps = 0;     // steps in the stretch
  double records = 1;   // train records in it
  double unfinite = 0;  // of these, with a loss that is not finite
  // Means over the steps of the stretch that have one.
  double loss = kUnknown, nll = kUnknown, accuracy = kUnknown;
  // At its end.
  double learning_rate = kUnknown, gradient_norm = kUnknown, epoch = kUnknown, elapsed_seconds = kUnknown,
         peak_memory_bytes = kUnknown;
  // Sums.
  double pairs = 0, source_tokens = 0, target_tokens = 0;
  double compute_seconds = 0, data_seconds = 0, validation_seconds = 0, checkpoint_seconds = 0;
  double communication_seconds = 0;  // waiting for the network: what compute does not hide
  double transfer_seconds = 0;       // that transfers took, hidden or not; 0 = not recorded
  double other_seconds = 0;          // of the steps, in none of these parts
  double idle_seconds = 0;           // of the device, between two steps
  double sent_bytes = 0, received_bytes = 0;
  double flops = 0;                // model FLOPs of this rank's tokens
  double rows = 0, dead_rows = 0;  // that this rank worked through; of these, without a token
  double skipped_steps = 0;

  double step_seconds() const { return compute_seconds + communication_seconds + data_seconds + other_seconds; }
};

struct ValidPoint {
  int64_t step = 0;
  double time = 0;
  double nll = kUnknown, train_nll = kUnknown, accuracy = kUnknown;  // nats a target token
  double bleu = kUnknown, chrf = kUnknown;                           // 0 to 100
  double bleu_low = kUnknown, bleu_high = kUnknown;                  // 95 % over resamplings of the sentences
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

// How a rank began: written at every start.
struct SetupPoint {
  int64_t step = 0;
  double time = 0;
  double schema = kUnknown, rank = kUnknown, ranks = kUnknown, node = kUnknown, nodes = kUnknown;
  double parameters = kUnknown, sharded = kUnknown;
  double planned_sent_bytes = kUnknown, planned_received_bytes = kUnknown;  // a step, this rank
  double peak_flops = kUnknown;                                             // FLOP/s of matrix products, measured
  std::string host, device, backend, precision, wire, interface, version;
};

// What the probes of a rank's host saw over a stretch of time, up to `time`. NaN = not measured.
struct ProbePoint {
  int64_t step = 0;
  double time = 0;
  double seconds = 0;  // of the stretch
  // Means over the stretch.
  double gpu_power_watts = kUnknown, gpu_sm_clock_mhz = kUnknown, gpu_memory_clock_mhz = kUnknown,
         gpu_temperature_celsius = kUnknown, gpu_utilisation_percent = kUnknown;
  double cpu_busy = kUnknown, load = kUnknown;  // share of all cores; runnable threads
  // At its end.
  double gpu_power_limit_watts = kUnknown, gpu_memory_used_bytes = kUnknown, gpu_memory_total_bytes = kUnknown;
  double cpu_cores = kUnknown, memory_available_bytes = kUnknown, memory_total_bytes = kUnknown;
  double disk_free_bytes = kUnknown, disk_total_bytes = kUnknown;
  double process_memory_bytes = kUnknown, process_threads = kUnknown;
  double network_link_bits_per_second = kUnknown;  // of the run's interface
  // Sums; the network's are of the run's interface.
  double network_received_bytes = kUnknown, network_sent_bytes = kUnknown, network_received_packets = kUnknown,
         network_sent_packets = kUnknown, network_received_dropped = kUnknown, network_sent_dropped = kUnknown;
  double disk_written_bytes = kUnknown, process_written_bytes = kUnknown, process_cpu_seconds = kUnknown,
         probe_cpu_seconds = kUnknown;
  double gpu_throttled_seconds = kUnknown;  // for heat or power, by gpu_throttle
  double gpu_capped_seconds = kUnknown;     // at the power limit, where it does all it may
  std::string gpu_throttle;                 // the reasons at its end, by commas; empty = none
};

}  // namespace tandem
