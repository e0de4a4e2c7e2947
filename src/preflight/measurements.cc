#include "preflight/measurements.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tandem::preflight {

namespace {

using Json = nlohmann::json;

Json to_json(const StepTimeline& step) {
  Json messages = Json::array();
  for (const TimedMessage& m : step.messages) {
    messages.push_back({m.ready, m.bytes, m.gradients, m.after_join});
  }
  return {step.backward_end, step.update, step.overhead, messages};
}

StepTimeline step_of(const Json& json) {
  StepTimeline step{{}, json.at(0), json.at(1), json.at(2)};
  for (const Json& m : json.at(3)) {
    step.messages.push_back({m.at(0), m.at(1), m.at(2), m.at(3)});
  }
  return step;
}

double number(const Json& json) { return json.is_null() ? kNotMeasured : json.get<double>(); }

}  // namespace

std::string to_text(const RankMeasurements& m) {
  Json steps = Json::array(), links = Json::array();
  for (const StepTimeline& step : m.steps) {
    steps.push_back(to_json(step));
  }
  for (const Link& l : m.links) {
    links.push_back({l.from, l.to, l.there, l.back, l.round_trip, l.clock_offset, l.clock_error});
  }
  return Json{
      {"rank", m.rank},
      {"node", m.node},
      {"names", {m.host, m.address, m.interface, m.device, m.disk}},
      {"gpus", m.gpus},
      {"clock", m.clock_mhz},
      {"numbers", {m.memory_free, m.memory_total, m.product_flops, m.disk_free, m.sent, m.received, m.compute_speed}},
      {"steps", steps},
      {"links", links}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankMeasurements parse_measurements(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    RankMeasurements m;
    m.rank = json.at("rank");
    m.node = json.at("node");
    const Json& names = json.at("names");
    m.host = names.at(0);
    m.address = names.at(1);
    m.interface = names.at(2);
    m.device = names.at(3);
    m.disk = names.at(4);
    m.gpus = json.at("gpus");
    m.clock_mhz = number(json.at("clock"));
    const Json& numbers = json.at("numbers");
    double* const places[] = {&m.memory_free, &m.memory_total, &m.product_flops, &m.disk_free,
                              &m.sent,        &m.received,     &m.compute_speed};
    for (size_t i = 0; i < std::size(places); ++i) {
      *places[i] = number(numbers.at(i));
    }
    for (const Json& step : json.at("steps")) {
      m.steps.push_back(step_of(step));
    }
    for (const Json& l : json.at("links")) {
      m.links.push_back({l.at(0), l.at(1), l.at(2), l.at(3), l.at(4), l.at(5), l.at(6)});
    }
    return m;
  } catch (const Json::exception& error) {
    fail("a rank's measurements cannot be read: {}", error.what());
  }
}

}  // namespace tandem::preflight
