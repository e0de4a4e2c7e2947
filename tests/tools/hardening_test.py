"""The program and the library carry what CONTRIBUTING.md names under hardening; a program built without it is found out.

usage: hardening_test.py COMPILER CONFIG FILE ...   (files that are linked; calls are checked unless CONFIG is Debug)
"""
import os
import re
import subprocess
import sys
import tempfile


def missing(file, config):
    """What the ELF file lacks, in words."""
    text = subprocess.run(['readelf', '-W', '--file-header', '--program-headers', '--dynamic', '--dyn-syms', file],
                          check=True, capture_output=True, text=True).stdout
    wanted = {
        'a position that is random (PIE)': r'Type:\s+DYN',
        'symbols bound at the start (BIND_NOW)': r'\(FLAGS(_1)?\).*\bNOW\b|\(BIND_NOW\)',
        'read-only tables of the loader (GNU_RELRO)': r'^ +GNU_RELRO',
        'a stack that cannot be run': r'^ +GNU_STACK .* RW +0x',
        'guards on the stack': r' __stack_chk_fail\b',
    }
    if config != 'Debug':
        wanted['checked calls of the C library (FORTIFY)'] = r' __\w+_chk@'
    return [what for what, pattern in wanted.items() if not re.search(pattern, text, re.MULTILINE)]


def main(compiler, config, *files):
    bad = [f'{file} lacks {what}' for file in files for what in missing(file, config)]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, 'bare.cc'), os.path.join(folder, 'bare')
        with open(source, 'w', encoding='utf-8') as out:
            out.write('int main() { return 0; }\n')
        subprocess.run([compiler, '-O2', '-no-pie', '-fno-stack-protector', '-U_FORTIFY_SOURCE',
                        '-Wl,-z,norelro,-z,lazy,-z,execstack', source, '-o', program], check=True)
        if len(missing(program, config)) != (5 if config == 'Debug' else 6):
            bad.append(f'a program without any of it lacks only: {missing(program, config)}')
    print('\n'.join(bad) or f'{len(files)} files carry it')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
