"""tools/release in a small tree, where cmake and tools/bundle are stand-ins."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

RELEASE = pathlib.Path(__file__).resolve().parents[2] / 'tools/release'
STANDS_IN = {
    'stand-ins/cmake': 'mkdir -p build/release/bin; printf "#!/bin/sh\\necho ${BUILT:-1.2.3}\\n" > build/release/bin/tandem\n'
                       'chmod +x build/release/bin/tandem',
    'stand-ins/ldd': 'echo "$LDD"',
    'tools/bundle': 'echo "bundle $3" > "$2"',
}
CHANGELOG = '# Changelog\n\n## {}\n- It flies.\n- `and` sings.\n\n## 1.2.2 (2026-01-01)\n- It walked.\n'


class Release(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        for name, text in STANDS_IN.items():
            self.write(name, f'#!/bin/sh\n{text}\n').chmod(0o755)
        shutil.copy(RELEASE, self.tree / 'tools/release')
        self.write('.gitignore', '/build/\n')
        self.write('CMakeLists.txt', 'project(tandem VERSION 1.2.3 LANGUAGES CXX)\n')
        self.write('CHANGELOG.md', CHANGELOG.format('Unreleased'))
        self.git('init', '-q')
        self.commit()

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding='utf-8')
        return path

    def git(self, *arguments):
        return subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b', *arguments], cwd=self.tree, check=True,
                              capture_output=True, text=True).stdout

    def commit(self):
        self.git('add', '-A')
        self.git('commit', '-q', '-m', 'a')

    def release(self, version='1.2.3', **environment):
        path = f'{self.tree}/stand-ins:{os.environ["PATH"]}'
        return subprocess.run([self.tree / 'tools/release', version], env={**os.environ, 'PATH': path, **environment},
                              capture_output=True, text=True, check=False)

    def refused(self, words, *arguments, **environment):
        done = self.release(*arguments, **environment)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(words, done.stderr)
        self.assertFalse((self.tree / 'build/tandem-1.2.3').exists())

    def test_a_release(self):
        done = self.release(LDD='libcublasLt.so.13')
        self.assertEqual(done.returncode, 0, done.stderr)
        out = self.tree / 'build/tandem-1.2.3'
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         ['SHA256SUMS', 'notes.md', 'tandem-1.2.3-slim.tar.gz', 'tandem-1.2.3.tar.gz'])
        subprocess.run(['sha256sum', '--check', '--quiet', 'SHA256SUMS'], cwd=out, check=True)
        self.assertEqual((out / 'SHA256SUMS').read_text().count('\n'), 2)
        self.assertEqual((out / 'notes.md').read_text(), 'Tandem 1.2.3\n\n- It flies.\n- `and` sings.\n\n')
        changelog = (self.tree / 'CHANGELOG.md').read_text()
        self.assertRegex(changelog, r'^# Changelog\n\n## 1\.2\.3 \(20\d\d-\d\d-\d\d\)\n- It flies\.\n')
        self.assertEqual(self.git('tag') + self.git('status', '--porcelain'), ' M CHANGELOG.md\n')
        for command in re.findall(r'^  git (.*)$', done.stdout, re.MULTILINE):  # the next commands do as they say
            subprocess.run(f'git -c user.name=a -c user.email=a@b {command}', shell=True, cwd=self.tree, check=True,
                           capture_output=True)
        self.assertEqual(self.git('status', '--porcelain') + self.git('tag', '-l', '-n9').split('\n')[0],
                         'v1.2.3          Tandem 1.2.3')
        self.refused_again()

    def refused_again(self):
        done = self.release()
        self.assertIn('there is a tag v1.2.3 already', done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_a_section_of_the_version_stays_as_it_is(self):
        self.write('CHANGELOG.md', CHANGELOG.format('1.2.3 (2026-02-03)'))
        self.commit()
        done = self.release()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.git('status', '--porcelain'), '')
        self.assertFalse((self.tree / 'build/tandem-1.2.3/tandem-1.2.3.tar.gz').exists())  # without CUDA
        self.assertNotIn('git commit', done.stdout)

    def test_what_is_refused(self):
        for version in ('', '1.2', '1.2.3.4', 'v1.2.3', '1.2.x', '01.2.3', '1.2.3 '):
            self.refused('three numbers', version)
        self.refused('CMakeLists.txt has version 1.2.3', '1.2.4')
        self.refused('is version 1.2.2, not 1.2.3', BUILT='1.2.2')
        self.write('more', '')
        self.refused('not committed')
        self.write('CHANGELOG.md', '# Changelog\n\n## Unreleased\n\n## 1.2.2\n- It walked.\n')
        self.commit()
        self.refused('neither a section 1.2.3')


if __name__ == '__main__':
    unittest.main()
