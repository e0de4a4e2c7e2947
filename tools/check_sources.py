#!/usr/bin/env python3
"""Checks the names and the includes of src/, apps/ and include/:

 - no qualified name is defined twice: a type, alias, concept, variable, or function with the same parameters. A file
   no_<feature>.cc stands in for others that a build leaves out, and may define what they do;
 - what a folder of src/ defines lies in the namespace of its name below tandem; the library's interface lies in
   tandem itself, as in include/, and the program's subcommands in tandem::cli;
 - every #include obeys the arrows of the table of folders in docs/design.md, and so do the libraries in the
   CMakeLists.txt of each folder in src/.

usage: tools/check_sources.py [ROOT]
"""
import collections
import pathlib
import re
import sys

TOKEN = re.compile(r'''
    (?P<nothing> //[^\n]* | /\*.*?\*/ )
  | ^[ \t]*\#[ \t]*(?P<directive>\w+)(?:[^\n\\]|\\.)*
  | (?:u8|[uUL])?R"(?P<delimiter>[^()\\ ]*)\(.*?\)(?P=delimiter)"
  | (?:u8|[uUL])?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
  | [0-9](?:[\w.]|'[0-9a-fA-F])* | \w+ | :: | -> | [^\s\w]''', re.VERBOSE | re.MULTILINE | re.DOTALL)
SOURCES = ('.h', '.cuh', '.cc', '.cu')
HEADERS = ('.h', '.cuh')
TYPES = {'class', 'struct', 'union', 'enum'}
BUILTIN = {'bool', 'char', 'double', 'float', 'int', 'long', 'short', 'signed', 'unsigned', 'void', 'auto'}
NO_FUNCTION = {'__launch_bounds__', '__attribute__', '__cluster_dims__', 'alignas', 'decltype', 'noexcept', 'requires',
               'explicit', 'static_assert'}

Definition = collections.namedtuple('Definition', 'name kind signature file line')


def tokens_of(text):
    """[(token, line)] of the program; of #if ... #else ... #endif the first branch."""
    result, left_out, line, end = [], [], 1, 0
    for match in TOKEN.finditer(text):
        line += text.count('\n', end, match.start())
        end = match.start()
        directive = match['directive'] or ''
        if directive.startswith('if'):
            left_out.append(False)
        elif directive.startswith('el'):
            left_out[-1] = True
        elif directive == 'endif':
            left_out.pop()
        elif not directive and not match['nothing'] and not any(left_out):
            result.append((match.group(), line))
    return result


class Reader:
    """Reads the declarations of one file at namespace scope; `found` is what they define."""

    def __init__(self, file, text):
        self.file, self.found = file, []
        tokens = tokens_of(text)
        self.tokens, self.lines = [token for token, _ in tokens], [line for _, line in tokens]
        self.header = file.endswith(HEADERS)
        self.read_scope(0, [])

    def token(self, i):
        return self.tokens[i] if i < len(self.tokens) else ';'

    def after_group(self, i, opening='({[', closing=')}]'):
        """The place behind the bracket that closes the one at i."""
        depth = 0
        while i < len(self.tokens):
            if opening == '<' and self.tokens[i] in '({[':
                i = self.after_group(i)
                continue
            depth += (self.tokens[i] in opening) - (self.tokens[i] in closing)
            i += 1
            if depth == 0:
                break
        return i

    def after_statement(self, i):
        while self.token(i) not in ';}':
            i = self.after_group(i) if self.tokens[i] in '({[' else i + 1
        return i + 1 if i < len(self.tokens) and self.tokens[i] == ';' else i

    def read_scope(self, i, names):
        """To the end of a namespace; `names` are those around it, None for one that has no name."""
        while i < len(self.tokens) and self.tokens[i] != '}':
            i = self.read_declaration(i, names)
        return i + 1

    def read_head(self, i):
        """The words of a declaration up to ; { } = or a single colon, each group of brackets one word."""
        words = []
        while self.token(i) not in (';', '{', '}', '=', ':'):
            begin = i
            if self.tokens[i] == 'operator':
                i += 3 if self.token(i + 1) == '(' else 2
                while self.token(i) != '(':
                    i += 1
            elif self.tokens[i] == '<' and words and re.match(r'\w', words[-1]):
                i = self.after_group(i, '<', '>')
            elif self.tokens[i] in '([':
                i = self.after_group(i)
            else:
                i += 1
            words.append(' '.join(self.tokens[begin:i]))
        return words, i

    def read_declaration(self, i, names):
        line = self.lines[i]
        words, i = self.read_head(i)
        end = self.token(i)
        if end == '{' and 'namespace' in words:
            inner = [word for word in words if word not in ('inline', 'namespace', '::')] or [None]
            for depth in range(1, len(inner) + 1):
                self.add(names + inner[:depth - 1], [inner[depth - 1]], 'namespace', '', line)
            return self.read_scope(i + 1, names + inner)
        if end == '{' and words[:1] == ['extern'] and len(words) == 2:
            return self.read_scope(i + 1, names)
        if end == '}':
            return i
        call = next((k for k in range(1, len(words)) if words[k][0] == '(' and words[k - 1] not in NO_FUNCTION
                     and re.search(r'[\w)=<>+*/\[\]-]$', words[k - 1])), None)
        while end not in (';', '{') and TYPES & set(words) and call is None and end != '=':  # what a type is based on
            i += 1
            end = self.token(i)
        if 'template' in words and '< >' in words or words[:1] == ['template'] and words[1][0] != '<':
            pass  # an explicit specialisation or instantiation
        elif call is not None and words[0] != 'using' and (end != ';' or 'typedef' in words):
            self.add_function(names, words, call, line)
        elif call is None and words:
            self.add_other(names, words, end, line)
        if call is not None and end == ':':  # initialisers, then the body
            while self.token(i) in (':', ','):
                while self.token(i) not in '({':
                    i = self.after_group(i, '<', '>') if self.tokens[i] == '<' else i + 1
                i = self.after_group(i)
            end = self.token(i)
        if call is not None and end == '{':
            return self.after_group(i)
        return self.after_statement(i)

    def add_function(self, names, words, call, line):
        name, k = [words[call - 1]], call - 2
        if k >= 0 and words[k] == '~':
            name, k = ['~' + name[0]], k - 1
        while k > 0 and words[k] == '::':
            k -= 2 if words[k - 1][0] == '<' else 1
            name.insert(0, words[k])
            k -= 1
        if not self.header and 'static' in words[:call]:
            return
        group, templates = words[call], []
        if words[0] == 'template':  # by number, since the names of its parameters mean nothing
            templates = re.findall(r'(\w+) (?=[,=>])', words[1])
            for number, parameter in enumerate(templates):
                group = re.sub(rf'\b{parameter}\b', f'T{number}', group)
        limits = words[words.index('requires'):call - 1] if 'requires' in words[:call] else []
        behind = [word for word in words[call + 1:] if word in ('const', '&')]
        self.add(names, name, 'function', str((parameters_of(group), len(templates), limits, behind)), line)

    def add_other(self, names, words, end, line):
        if words[0] == 'template':
            words = words[2:]
        plain = [word for word in words if re.match(r'\w', word)]
        kinds = [word for word in words if word in TYPES]
        if kinds and end != '=' and 'typedef' not in words:
            if end != ';' and not any(word[0] == '<' for word in words):
                at = max(k for k, word in enumerate(words) if word in TYPES)
                self.add(names, [word for word in words[at + 1:] if re.match(r'\w', word) and word not in (
                    'final', *NO_FUNCTION)], 'type', '', line)
        elif words[0] == 'using' and end == '=' or words[0] == 'typedef':
            if self.header:  # in other files it is a short name for that file
                self.add(names, [plain[1] if end == '=' else plain[-1]], 'alias', '', line)
        elif 'concept' in words:
            self.add(names, [plain[-1]], 'concept', '', line)
        elif len(plain) > 1 and words[0] not in ('using', 'namespace', 'static_assert', 'friend'):
            local = 'static' in words or ('const' in words or 'constexpr' in words) and 'inline' not in words
            if (self.header or not local) and not ('extern' in words and end == ';'):
                at = max(k for k, word in enumerate(words) if re.match(r'\w', word))
                name = [words[at]]
                while at > 1 and words[at - 1] == '::':
                    at -= 3 if words[at - 2][0] == '<' else 2
                    name.insert(0, words[at])
                self.add(names, name, 'variable', '', line)

    def add(self, names, name, kind, signature, line):
        if None not in names and name and name[0] is not None and name != ['main']:
            self.found.append(Definition('::'.join(names + name), kind, signature, self.file, line))


def parameters_of(group):
    """The types in "( const View & x , int n = 3 )"."""
    result, depth, now = [], 0, []
    for token in re.findall(r'::|->|\w+|[^\s\w]', group)[1:-1] + [',']:
        depth += (token in '(<[{') - (token in ')>]}')
        if token != ',' or depth:
            now.append(token)
            continue
        now = now[:now.index('=')] if '=' in now else now
        nouns = [word for word in now if re.match(r'\w', word) and word not in ('const', 'volatile')]
        if len(nouns) > 1 and re.match(r'\w', now[-1]) and now[-1] not in BUILTIN and now[-2] != '::':
            now.pop()
        if not {'*', '&'} & set(now):
            now = [word for word in now if word != 'const']
        result.append(' '.join(now))
        now = []
    return [] if result in ([''], ['void']) else result


def files_below(root, folders):
    return [path for folder in folders for path in sorted((root / folder).rglob('*')) if path.suffix in SOURCES]


def definitions(root):
    for path in files_below(root, ('include', 'src', 'apps')):
        yield from Reader(str(path.relative_to(root)), path.read_text()).found


def wrong_namespaces(root):
    problems = []
    for found in definitions(root):
        parts = found.file.split('/')
        home = {'include': [], 'apps': ['cli'], 'src': [folder for folder in parts[1:2] if folder != 'library']}[parts[0]]
        home = ['tandem'] + home
        if found.kind != 'namespace' and found.name.split('::')[:-1][:len(home)] != home:
            problems.append(f'{found.file}:{found.line}: {found.name} does not lie in {"::".join(home)}')
    return problems


def double_definitions(root):
    places, problems = collections.defaultdict(list), []
    for found in definitions(root):
        if not found.file.rpartition('/')[2].startswith('no_'):
            places[found.name].append(found)
    for name, all_found in places.items():
        for kind in sorted({(found.kind, found.signature) for found in all_found}):
            same = [found for found in all_found if (found.kind, found.signature) == kind]
            if len(same) > 1 and kind[0] != 'namespace':
                problems.append(f'{name} is defined twice: ' + ' and '.join(f'{f.file}:{f.line}' for f in same))
        firsts = {found.kind: found for found in reversed(all_found)}
        if len(firsts) > 1:
            problems.append(f'{name} names two things: ' + ' and '.join(
                f'{f.kind} ({f.file}:{f.line})' for f in firsts.values()))
    return problems


def arrows_of(root):
    """{folder: the folders that it may include directly, None for any} out of docs/design.md."""
    rows = {}
    for line in (root / 'docs/design.md').read_text().splitlines():
        cells = re.split(r'\s{2,}|\s*\|\s*', line.replace('`', '').strip('| '))
        if re.fullmatch(r'(src|apps|include)/[\w/]*', cells[0]):
            folder = cells[0].rstrip('/').removeprefix('src/')
            if len(cells) < 3:
                rows[folder] = None
            elif 'nothing' in cells[-1]:
                rows[folder] = []
            else:
                rows[folder] = list(rows) if cells[-1] == 'all of these' else re.split(r',\s*', cells[-1])
    return rows


def reach(folder, arrows):
    """Everything that the arrows lead to, the folder itself included."""
    seen, open_ = set(), [folder]
    while open_:
        here = open_.pop()
        if here not in seen:
            seen.add(here)
            open_ += arrows.get(here) or []
    return seen


def wrong_arrows(root):
    arrows, problems = arrows_of(root), []
    folders = sorted(path.name for path in (root / 'src').iterdir() if path.is_dir())
    for folder in folders:
        if arrows.get(folder) is None:
            problems.append(f'docs/design.md: the table of folders does not say what src/{folder} depends on')
    for folder, targets in arrows.items():
        if not (root / 'src' / folder).is_dir() and not (root / folder).is_dir():
            problems.append(f'docs/design.md: there is no folder {folder}')
        problems += [f'docs/design.md: {folder} depends on {target}, which is not in the table'
                     for target in targets or [] if target not in arrows]
    for path in files_below(root, ('include', 'src', 'apps')):
        place = str(path.relative_to(root))
        folder = folder_of(place, arrows)
        for line, text in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include\s*["<]([^">]+/[^">]+)[">]', text)
            for base in ('src/', 'include/') if include else ():
                target = folder_of(base + include[1], arrows)
                if arrows.get(folder) is not None and target and target not in reach(folder, arrows):
                    problems.append(f'{place}:{line}: {folder} must not include {include[1]}; its arrows in '
                                    f'docs/design.md are: {", ".join(arrows[folder]) or "none"}')
    for folder in folders:
        listing = root / 'src' / folder / 'CMakeLists.txt'
        if listing.exists() and arrows.get(folder) is not None:
            text = re.sub(r'#[^\n]*', '', listing.read_text())
            libraries = set(re.findall(r'\btandem_(\w+)\b(?!\()', text)) & set(folders) - {folder}
            linked = set().union(*(reach(library, arrows) for library in libraries)) & set(folders)
            allowed = reach(folder, arrows) & set(folders) - {folder}
            if linked != allowed:
                problems.append(f'src/{folder}/CMakeLists.txt reaches {", ".join(sorted(linked)) or "nothing"}; by '
                                f'docs/design.md it is {", ".join(sorted(allowed)) or "nothing"}')
    return problems


def folder_of(place, arrows):
    """The folder of the table that a file lies in, or None."""
    return max((folder for folder in arrows if place.startswith((folder + '/', f'src/{folder}/'))), key=len, default=None)


def problems_of(root):
    return double_definitions(root) + wrong_namespaces(root) + wrong_arrows(root)


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    problems = problems_of(root)
    print('\n'.join(problems) or 'every name is defined once, in the namespace of its folder, and every include obeys its arrow')
    return bool(problems)


if __name__ == '__main__':
    sys.exit(main())
