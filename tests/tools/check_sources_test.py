"""tools/check_sources.py finds what is planted in a small tree, and nothing in the tree without it."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'tools'))
import check_sources  # noqa: E402

TREE = {
    'docs/design.md': '''
```
apps/tandem/     main.cc and one file a subcommand
include/tandem/  the interface                 nothing of ours
src/core/        errors; files                 depends on nothing of ours
src/data/        lines, batches                core
src/launch/      programs that are started     core, data
```
''',
    'src/core/CMakeLists.txt': 'tandem_library(tandem_core LIBS fmt::fmt)',
    'src/data/CMakeLists.txt': 'tandem_library(tandem_data LIBS tandem_core)',
    'src/launch/CMakeLists.txt': 'set(libraries tandem_data)  # and tandem_core by it\n'
                                 'tandem_library(tandem_launch LIBS ${libraries})',
    'apps/tandem/main.cc': '#include "launch/child.h"\nint main() { return 0; }',
    'include/tandem/translator.h': 'namespace tandem { struct Options { int beam = 4; }; }',
    'src/core/error.h': '''
// class LineReader {}; in a comment, and in a text:
namespace tandem {
inline constexpr const char* kText = "class LineReader {};";
constexpr char kRaw[] = R"x(struct LineReader {};)x";
class LineReader;                                  // forward declarations
template <class T> struct Factor;
enum class Color : unsigned char;
void fail(int code);
extern int counter;
template <class T> struct Shape { T value; };
template <> struct Shape<int> { int value; };      // specialisations
template <class T> struct Shape<T*> { T* value; };
template <class T> T twice(T x) { return x + x; }
template <> inline int twice<int>(int x) { return 2 * x; }
inline int twice(int x, int by) { return x * by; } // overloads
inline int size(const Shape<int>& shape) { return shape.value; }
inline int size(const Shape<long>& shape) { return int(shape.value); }
struct Pair {
  int first = 1, second = 2;
  int& at(int i);
  int at(int i) const;
  bool operator==(const Pair&) const = default;
};
namespace log { inline void fail(int) {} }
}
''',
    'src/core/error.cc': '''
#include "core/error.h"
namespace tandem {
namespace { class Hidden { int a; }; int helper(int x) { return x; } constexpr int kLocal = 1; }
static int seconds() { return 1; }
constexpr int kLimit = 3;
int counter = 0;
void fail(int code) { helper(code); }
int& Pair::at(int i) { return i ? second : first; }
int Pair::at(int i) const { return i ? second : first; }
template struct Shape<double>;
}
''',
    'src/data/lines.h': '''
#include "core/error.h"
namespace tandem {
class LineReader {
 public:
  explicit LineReader(int count) : count_(count), other_{count} {}
 private:
  int count_, other_;
};
template <class T> struct Factor { T x; };
enum class Color : unsigned char { red };
using Rows = Shape<int>;
}
''',
    'src/data/lines.cc': '''
#include "data/lines.h"
namespace tandem {
namespace { class Hidden {}; int helper(int x) { return 2 * x; } constexpr int kLocal = 2; }
static int seconds() { return 2; }
constexpr int kLimit = 4;
bool has_feature() { return true; }
}
''',
    'src/data/no_lines.cc': 'namespace tandem { bool has_feature() { return false; } }',
    'src/launch/child.h': '#include "data/lines.h"\nnamespace tandem { struct Child : Pair { int id{0}; }; }',
}


class CheckSources(unittest.TestCase):
    def check(self, changes, checks=(check_sources.double_definitions, check_sources.wrong_arrows)):
        """What the check prints of the tree with these texts added to its files, one line a problem."""
        with tempfile.TemporaryDirectory() as folder:
            for name in TREE.keys() | changes.keys():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(TREE.get(name, '') + '\n' + changes.get(name, ''))
            return '\n'.join(line for check in checks for line in check(pathlib.Path(folder)))

    def test_nothing_is_found_in_a_clean_tree(self):
        self.assertEqual(self.check({}), '')

    def test_a_name_that_is_defined_twice(self):
        for name, text in {
                'LineReader': 'class LineReader { int x; };',
                'Factor': 'template <class A>\nstruct Factor { const A* data; };',
                'Color': 'enum class Color : unsigned char { blue };',
                'Options': 'struct Options final : Pair {};',
                'Rows': 'using Rows = int;',
                'kText': 'inline constexpr int kText = 1;',
                'twice': 'template <class U> U twice(U y) { return y; }',
                'fail': 'inline void fail(const int number = 0) { (void)number; }',
                'counter': 'inline int counter{5};',
                'Pair::at': 'inline int Pair::at(int index) const { return index; }',
                'log::fail': '} namespace tandem::log { void fail(int x) { (void)x; }'}.items():
            found = self.check({'src/launch/child.h': 'namespace tandem {\n' + text + '\n}'})
            self.assertIn(f'tandem::{name} is defined twice', found, text)
            self.assertIn('src/launch/child.h:', found)
            self.assertNotIn('\n', found)

    def test_a_name_of_two_things(self):
        for name, text in {'LineReader': 'using LineReader = int;', 'log': 'class log {};', 'size': 'struct size {};',
                           'Pair': 'namespace Pair { int x; }'}.items():
            found = self.check({'src/launch/child.h': 'namespace tandem {\n' + text + '\n}'})
            self.assertIn(f'tandem::{name} names two things', found, text)

    def test_a_definition_after_initialisers(self):
        found = self.check({'src/launch/child.cc': 'namespace tandem {\nChild::Child(int x) : Pair(), id{x} { run(); }\n'
                                                   'void fail(int) {}\n}'})
        self.assertIn('tandem::fail is defined twice: src/core/error.cc:8 and src/launch/child.cc:4', found)

    def test_a_name_in_the_namespace_of_another_folder(self):
        namespaces = [check_sources.wrong_namespaces]
        for file, text in {'src/launch/agent.cc': 'namespace tandem::launch { void start() {} }\nnamespace gloo { class A; }',
                           'src/core/log.h': 'namespace tandem::inline core { namespace log { struct Line {}; } }',
                           'src/library/translator.cc': 'namespace tandem { void Translator::score() {} }',
                           'apps/tandem/train.cc': 'namespace tandem::cli { int train() { return 0; } }'}.items():
            self.assertNotIn(file, self.check({file: text}, namespaces))
        for file, text in {'src/launch/agent.cc': 'namespace tandem { void start() {} }',
                           'src/core/log.h': 'namespace tandem::launch { struct Line {}; }',
                           'src/data/batch.h': 'struct Line {};',
                           'src/library/translator.cc': 'namespace library { int score = 0; }',
                           'apps/tandem/train.cc': 'namespace tandem { int train() { return 0; } }'}.items():
            found = self.check({file: text}, namespaces)
            self.assertRegex(found, rf'(?m)^{file}:\d+: \S+ does not lie in tandem')

    def test_an_include_against_the_arrows(self):
        found = self.check({'src/core/error.h': '#include "data/lines.h"'})
        self.assertIn('core must not include data/lines.h', found)
        for file, header in {'src/data/lines.cc': 'launch/child.h', 'include/tandem/translator.h': 'core/error.h',
                             'src/data/lines.h': 'tandem/translator.h'}.items():
            self.assertIn(f'must not include {header}', self.check({file: f'#include <{header}>'}), file)

    def test_an_arrow_that_only_one_of_docs_and_build_has(self):
        found = self.check({'src/core/CMakeLists.txt': 'target_link_libraries(tandem_core PRIVATE tandem_data)'})
        self.assertIn('src/core/CMakeLists.txt reaches', found)

    def test_a_folder_that_the_table_does_not_have(self):
        self.assertIn('src/store depends on', self.check({'src/store/a.h': 'namespace tandem {}'}))


if __name__ == '__main__':
    unittest.main()
