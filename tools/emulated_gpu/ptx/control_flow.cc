#include <algorithm>
#include <vector>

#include "emulated_gpu/ptx/program.h"

namespace emulated {

namespace {

// Stretches of instructions that are entered at their beginning and left at their end, and one more for the end of all.
class Graph {
 public:
  explicit Graph(const std::vector<Instruction>& code) : code_(code), stretch_of_(code.size() + 1, 0) {
    std::vector<bool> begins(code.size() + 1, false);
    begins[0] = begins[code.size()] = true;
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i].step == Step::branch) {
        begins[code[i].target] = begins[i + 1] = true;
      } else if (code[i].step == Step::exit) {
        begins[i + 1] = true;
      }
    }
    for (size_t i = 0; i <= code.size(); ++i) {
      if (begins[i]) {
        begins_.push_back(static_cast<uint32_t>(i));
      }
      stretch_of_[i] = static_cast<uint32_t>(begins_.size()) - 1;
    }
  }

  size_t size() const { return begins_.size(); }
  uint32_t end() const { return static_cast<uint32_t>(size()) - 1; }
  uint32_t begin_of(uint32_t stretch) const { return begins_[stretch]; }
  uint32_t stretch_of(size_t instruction) const { return stretch_of_[instruction]; }

  std::vector<uint32_t> successors(uint32_t stretch) const {
    if (stretch == end()) {
      return {};
    }
    const uint32_t last = begins_[stretch + 1] - 1;
    const Instruction& instruction = code_[last];
    std::vector<uint32_t> next;
    if (instruction.step == Step::branch) {
      next.push_back(stretch_of_[instruction.target]);
    } else if (instruction.step == Step::exit) {
      next.push_back(end());
    }
    if (instruction.step == Step::plain || instruction.step == Step::barrier || instruction.guard != kNone) {
      next.push_back(stretch + 1);
    }
    return next;
  }

 private:
  const std::vector<Instruction>& code_;
  std::vector<uint32_t> begins_, stretch_of_;
};

// The order in which a walk against the arrows, from the end, leaves the stretches; the end is the last.
std::vector<uint32_t> walk_from_end(const Graph& graph, const std::vector<std::vector<uint32_t>>& before) {
  std::vector<uint32_t> left;
  std::vector<size_t> taken(graph.size(), 0);
  std::vector<bool> seen(graph.size(), false);
  std::vector<uint32_t> stack = {graph.end()};
  seen[graph.end()] = true;
  while (!stack.empty()) {
    const uint32_t stretch = stack.back();
    if (taken[stretch] == before[stretch].size()) {
      left.push_back(stretch);
      stack.pop_back();
    } else if (const uint32_t next = before[stretch][taken[stretch]++]; !seen[next]) {
      seen[next] = true;
      stack.push_back(next);
    }
  }
  return left;
}

}  // namespace

// Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm, on the reversed graph.
void find_joins(std::vector<Instruction>& code) {
  const Graph graph(code);
  std::vector<std::vector<uint32_t>> after(graph.size()), before(graph.size());
  for (uint32_t s = 0; s < graph.size(); ++s) {
    after[s] = graph.successors(s);
    for (const uint32_t next : after[s]) {
      before[next].push_back(s);
    }
  }
  const std::vector<uint32_t> order = walk_from_end(graph, before);
  std::vector<uint32_t> number(graph.size(), kNone), join(graph.size(), kNone);
  for (uint32_t i = 0; i < order.size(); ++i) {
    number[order[i]] = i;
  }
  join[graph.end()] = graph.end();
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = order.size() - 1; i-- > 0;) {
      uint32_t best = kNone;
      for (uint32_t next : after[order[i]]) {
        if (number[next] == kNone || join[next] == kNone) {
          continue;
        }
        while (best != kNone && best != next) {
          uint32_t& lower = number[best] < number[next] ? best : next;
          lower = join[lower];
        }
        best = next;
      }
      changed = changed || join[order[i]] != best;
      join[order[i]] = best;
    }
  }
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i].step == Step::branch) {
      const uint32_t stretch = join[graph.stretch_of(i)];
      code[i].join = stretch == kNone ? static_cast<uint32_t>(code.size()) : graph.begin_of(stretch);
    }
  }
}

}  // namespace emulated
