"""A bundle runs, its check sums hold for every file, and each library belongs to a named package with its licence.

usage: bundle_test.py TANDEM   (Debian only: 77 without dpkg-query)
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUNDLE = pathlib.Path(__file__).resolve().parents[2] / 'tools/bundle'
TANDEM = sys.argv.pop()


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        archive = pathlib.Path(cls.work.name, 'tandem.tar.gz')
        subprocess.run([BUNDLE, TANDEM, archive, '--slim'], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(['tar', '-C', cls.work.name, '-xzf', archive], check=True)
        cls.folder = pathlib.Path(cls.work.name, 'tandem')
        cls.document = json.loads((cls.folder / 'tandem.spdx.json').read_text(encoding='utf-8'))
        cls.packages = {entry['name']: entry for entry in cls.document['packages']}

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def sums_hold(self):
        return subprocess.run(['sha256sum', '--quiet', '--check', 'SHA256SUMS'], cwd=self.folder, capture_output=True,
                              check=False).returncode == 0

    def test_runs_as_the_version_that_it_names(self):
        version = subprocess.run([self.folder / 'tandem', '--version'], check=True, capture_output=True, text=True).stdout
        self.assertEqual(version.strip(), self.packages['tandem']['versionInfo'])

    def test_every_file_has_a_sum_that_holds(self):
        listed = [line.split('  ', 1)[1] for line in (self.folder / 'SHA256SUMS').read_text().splitlines()]
        files = [str(path.relative_to(self.folder)) for path in self.folder.rglob('*') if path.is_file()]
        self.assertEqual(sorted(listed + ['SHA256SUMS']), sorted(files))
        self.assertTrue(self.sums_hold())
        file = self.folder / 'glibc/version'
        text = file.read_text()
        file.write_text(text + ' ')
        self.assertFalse(self.sums_hold())
        file.write_text(text)

    def test_every_library_belongs_to_a_package_with_its_licence(self):
        named = [file for entry in self.packages.values() if entry.get('sourceInfo', '').startswith('files: ')
                 for file in entry['sourceInfo'].split()[1:]]
        carried = [str(path.relative_to(self.folder)) for folder in ('lib', 'glibc')
                   for path in (self.folder / folder).iterdir() if path.name != 'version']
        self.assertGreater(len(carried), 10)
        self.assertEqual(sorted(named), sorted(carried))
        for name, entry in self.packages.items():
            self.assertGreater((self.folder / 'licences' / name / 'copyright').stat().st_size, 500, name)
            self.assertTrue(entry['versionInfo'] and entry['licenseDeclared'], name)
        for name, licence in {'zlib1g': 'Zlib', 'libssl3': 'Apache-2.0', 'libdnnl2': 'Apache-2.0'}.items():
            self.assertEqual(self.packages[name]['licenseDeclared'], licence)


if __name__ == '__main__':
    if not shutil.which('dpkg-query'):
        print('SKIPPED: only Debian tells whose files are carried')
        sys.exit(77)
    unittest.main()
