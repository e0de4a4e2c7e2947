#include <fmt/format.h>

#include <cmath>

#include "core/human.h"
#include "report/sentences/sentences.h"

namespace tandem::report {

namespace {

std::string arithmetic_text(const observe::GpuWork& w) {
  if (!std::isfinite(w.share())) {
    return "";
  }
  const std::string achieved = flops_text(w.achieved), peak = flops_text(w.peak);
  return w.exceeds_peak()
             ? fmt::format(
                   ": {} a rank, more than the {} that matrix products reached when the run began, so something "
                   "else used the hardware then",
                   achieved, peak)
             : fmt::format(": {} a rank, {} of the {} that matrix products reach here", achieved,
                           percent_text(w.share()), peak);
}

std::string power_text(const observe::GpuWork& w) {
  if (!std::isfinite(w.power)) {
    return "";
  }
  std::string text = fmt::format("; power {:.0f} W", w.power);
  if (std::isfinite(w.power_limit)) {
    text += fmt::format(" of {:.0f} W ({})", w.power_limit, percent_text(w.power_share()));
    if (w.power_capped() && std::isfinite(w.clock)) {
      text += fmt::format(", the limit that holds the clock down, to {:.0f} MHz in the mean", w.clock);
    }
  }
  return text;
}

std::string waits_text(const observe::GpuWork& w) {
  std::string text;
  if (std::isfinite(w.idle)) {
    text += fmt::format("; {} of a step waits for data{}", percent_text(w.idle),
                        w.many_ranks ? ", the network or other ranks" : "");
  }
  if (w.gpu && w.between > 0) {
    text += fmt::format(", and between two steps the GPU idles for {} of one", percent_text(w.between));
  }
  if (w.many_dead_rows()) {
    text += fmt::format("; {} of the rows that it works through hold no token", percent_text(w.dead_row_share));
  }
  return text;
}

std::string utilisation_text(const observe::GpuWork& w) {
  if (!(w.utilisation >= 0)) {
    return "";
  }
  return w.spins()
             ? fmt::format(
                   "; the \"utilisation\" of {:.0f} % at {:.0f} W is a kernel that spins while it waits, not work",
                   w.utilisation, w.power)
             : fmt::format("; \"utilisation\" {:.0f} %, which says only that some kernel ran", w.utilisation);
}

std::string throttle_text(const observe::GpuWork& w) {
  return w.slowed_down() ? fmt::format("; slowed down for heat or power {} of the time ({})", percent_text(w.throttled),
                                       fmt::join(w.reasons, "; "))
                         : "";
}

std::string opening(const observe::GpuWork& w, const std::string& label) {
  return label == "working"    ? "Yes"
         : label == "partly"   ? "In part"
         : label == "spinning" ? fmt::format("No, {} mostly wait in a spinning kernel", w.gpu ? "the GPUs" : "the CPU")
                               : "Hardly";
}

}  // namespace

std::string gpu_work_text(const observe::GpuWork& w, const observe::Verdict& v) {
  if (v.label == "empty") {
    return "That cannot be said: neither the arithmetic of a step against the hardware's peak nor power is recorded.";
  }
  return opening(w, v.label) + arithmetic_text(w) + power_text(w) + waits_text(w) + utilisation_text(w) +
         throttle_text(w) + ".";
}

}  // namespace tandem::report
