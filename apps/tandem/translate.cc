// tandem translate: translates raw text line by line.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <stop_token>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "data/lines.h"
#include "decode/translate_stream.h"
#include "model_options.h"
#include "text/cleaning.h"

namespace tandem::cli {

namespace {

struct TranslateArguments {
  DecodingOptions decoding;
  std::string input = "-";
  std::string output = "-";
  int n_best = 0;
  bool scores = false;
};

// Returns a function that reads the input line by line. At a terminal, each line is read as soon as it is complete.
std::function<bool(std::string&)> open_input(const std::string& name, bool typed) {
  if (typed) {
    return [](std::string& line) { return static_cast<bool>(std::getline(std::cin, line)); };
  }
  auto reader = std::make_shared<data::LineReader>(name);  // lives as long as the function that holds it
  return [reader, warned = false](std::string& line) mutable {
    const bool more = reader->next(line);
    if (more && !warned && !text::valid_utf8(line)) {
      warned = true;
      log::warning("line {} of {} is not valid UTF-8: invalid bytes are lost, here and maybe in later lines",
                   reader->lines(), reader->name());
    }
    if (more && reader->cut()) {
      log::warning("line {} of {} is longer than {} bytes: only its beginning is translated", reader->lines(),
                   reader->name(), data::LineReader::kLongestLine);
    }
    return more;
  };
}

void run_translate(const TranslateArguments& arguments) {
  std::signal(SIGPIPE, SIG_DFL);  // so that a reader that closes the pipe ends this process without a message
  require(arguments.n_best == 0 || !arguments.scores, "--n-best already prints scores: leave out --scores");
  require(arguments.n_best >= 0, "--n-best {} is not possible: give a number from 1 to the beam", arguments.n_best);
  const bool typed = arguments.input == "-" && isatty(STDIN_FILENO) == 1;
  const auto next_line = open_input(arguments.input, typed);
  decode::TextOutput output(arguments.output);
  std::optional<Signals> signals;
  if (output.is_file()) {
    signals.emplace();  // so that an interrupted run leaves no partial file behind
  }
  TranslateOptions options = translate_options(arguments.decoding, std::max(1, arguments.n_best));
  std::stop_source stop;
  options.call.stop = stop.get_token();
  options.call.on_progress = [&signals, &stop, show = options.call.on_progress](const CallProgress& progress) {
    show(progress);
    if (signals && signals->stop_signal() != 0) {
      stop.request_stop();
    }
  };
  Translator translator = open_translator(arguments.decoding);
  log::info("{}; {}, step {}", translator.info().device, translator.info().directory, translator.info().step);
  // Reads many batches at once, to group sentences of similar length; at a terminal every line is answered at once.
  const int64_t batch = options.call.batch > 0 ? options.call.batch : translator.info().usual_batch;
  const decode::OutputFormat format = arguments.n_best > 0 ? decode::OutputFormat::n_best
                                      : arguments.scores   ? decode::OutputFormat::scores
                                                           : decode::OutputFormat::text;
  const auto translate = [&](std::span<const std::string> lines, int64_t first_line) {
    options.first_line = first_line;
    try {
      return translator.translate(lines, options);
    } catch (const Error&) {
      if (stop.stop_requested()) {
        throw Interrupted(signals->stop_signal(), "interrupted; nothing was written");
      }
      throw;
    }
  };
  const decode::StreamSummary summary = decode::translate_stream(
      translate, next_line, typed ? 1 : 64 * batch, format, [&output](std::string_view text) { output.write(text); });
  output.finish();
  const double seconds = std::max(summary.seconds, 1e-6);
  log::info("{} lines in {:.1f} s: {:.1f} lines/s, {:.0f} output pieces/s", summary.lines, seconds,
            static_cast<double>(summary.lines) / seconds, static_cast<double>(summary.output_pieces) / seconds);
}

}  // namespace

void add_translate(Program& program) {
  // Shared by the options and the action, which outlive this call.
  const auto a = std::make_shared<TranslateArguments>();
  Command command = program.add("translate", "Translates raw text: as many lines out as in, in the same order.");
  add_decoding_options(command, a->decoding);
  command.option("-i,--input", a->input,
                 "text, one sentence a line, plain or compressed (gz, xz, zst); '-': standard input");
  command.option("-o,--output", a->output, "the translations ('-': standard output); a file appears when complete");
  command.option("--n-best", a->n_best, "print this many translations of every line, with scores; 0 = only the best");
  command.flag("--scores", a->scores, "print score TAB log-probability TAB text");
  command.example(
      "tandem translate --model runs/en-de < in.txt > out.txt\n"
      "An empty line gives an empty line. A line that is too long for the model is translated in parts.\n"
      "With --n-best every translation is a line of its own, best first, the input's lines counted from 1:\n"
      "  line ||| text ||| score ||| log-probability");
  command.run([a] { run_translate(*a); });
}

}  // namespace tandem::cli
