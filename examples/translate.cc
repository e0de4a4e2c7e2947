// Translates standard input line by line with an installed libtandem: for each line its three best translations as
// `line TAB score TAB text TAB pieces`.
//
//   cmake -S examples -B build/example -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build/example
//   build/example/translate MODEL < in.txt
#include <tandem/translator.h>

#include <iostream>
#include <string>
#include <vector>

namespace {

void translate(const std::string& model) {
  tandem::ModelOptions options;
  options.on_message = [](tandem::Severity, const std::string& line) { std::cerr << line << "\n"; };
  tandem::Translator translator(model, options);
  std::cerr << translator.info().directory << " on " << translator.info().device << "\n";

  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) {
    lines.push_back(line);
  }
  tandem::TranslateOptions three;
  three.search.n_best = 3;
  three.pieces = true;
  const auto results = translator.translate(lines, three);
  for (size_t line = 0; line < results.size(); ++line) {
    for (const tandem::Translation& translation : results[line]) {
      std::cout << line + 1 << "\t" << translation.score << "\t" << translation.text << "\t";
      for (const std::string& piece : translation.pieces) {
        std::cout << piece << " ";
      }
      std::cout << "\n";
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: translate MODEL < TEXT\n";
    return 2;
  }
  try {
    translate(argv[1]);
    return 0;
  } catch (const tandem::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
