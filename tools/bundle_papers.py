#!/usr/bin/env python3
"""Writes into a bundle's folder what says where its content comes from:

  licences/PACKAGE/copyright   of each package that a carried or compiled-in file belongs to, and Tandem's LICENSE;
                               what they refer to is in licences/common-licenses
  tandem.spdx.json             the packages with versions and licences, SPDX 2.3
  SHA256SUMS                   of every other file: sha256sum -c SHA256SUMS

usage: tools/bundle_papers.py FOLDER VERSION < LINES     (a line: a carried file below FOLDER, a tab, where it was taken from)
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import uuid

COMPILED_IN = ('nlohmann-json3-dev', 'libcli11-dev', 'libjs-dygraphs')  # no library lists them
SPDX = {'expat': 'MIT', 'mit': 'MIT', 'apache-2.0': 'Apache-2.0', 'bsd-2-clause': 'BSD-2-Clause', 'zlib': 'Zlib',
        'bsd-3-clause': 'BSD-3-Clause', 'bsl-1.0': 'BSL-1.0', 'gpl-2': 'GPL-2.0-only', 'gpl-2+': 'GPL-2.0-or-later',
        'gpl-3+': 'GPL-3.0-or-later', 'lgpl-2.1': 'LGPL-2.1-only', 'lgpl-2.1+': 'LGPL-2.1-or-later',
        'lgpl-2+': 'LGPL-2.0-or-later', 'lgpl-3+': 'LGPL-3.0-or-later'}
GCC = 'GPL-3.0-or-later WITH GCC-exception-3.1'
IN_WORDS = {'libc6': 'LGPL-2.1-or-later', 'libgcc-s1': GCC, 'libstdc++6': GCC, 'libgomp1': GCC,
            'libidn2-0': 'GPL-2.0-or-later OR LGPL-3.0-or-later'}  # not said for programs, or of the library's files


def owner(path):
    """(package, version, architecture, its file of licences) that the file was taken from."""
    real = os.path.realpath(path)
    for name in (real, path, real.removeprefix('/usr'), '/usr' + real):  # dpkg knows it by one of them
        found = subprocess.run(['dpkg-query', '-S', name], capture_output=True, text=True, check=False).stdout
        if match := re.search(rf'^(\S+): {re.escape(name)}$', found, re.MULTILINE):
            return package(match[1])
    texts = [text for folder in pathlib.Path(path).parents[:2] + pathlib.Path(real).parents[:2]
             for name in ('EULA.txt', 'LICENSE', 'LICENSE.txt') if (text := folder / name).is_file()]
    if not texts:
        print(f'tools/bundle: {path} belongs to no package and has no licence beside it: see that you may pass it on',
              file=sys.stderr)
    return os.path.basename(path).split('.so')[0], None, None, texts[0] if texts else None


def package(name):
    version, architecture = subprocess.run(['dpkg-query', '-W', '-f', '${Version} ${Architecture}', name], check=True,
                                           capture_output=True, text=True).stdout.split()
    name = name.split(':')[0]
    return name, version, architecture, pathlib.Path('/usr/share/doc', name, 'copyright')


def licence(name, text):
    """What the file says of `Files: *`: the SPDX expression, or None, and its own words."""
    if name in IN_WORDS:
        return IN_WORDS[name], None
    for stanza in re.split(r'\n\s*\n', text):
        words = re.search(r'^License:[ \t]*(\S.*)$', stanza, re.MULTILINE)
        if words and re.search(r'^Files:\s*\*', stanza, re.MULTILINE):
            parts = [SPDX.get(part.strip().lower()) for part in words[1].split(' or ')]
            return ' OR '.join(parts) if all(parts) else None, words[1]
    return None, None


def described(name, version, architecture, text, files):
    expression, words = licence(name, text)
    result = {'name': name, 'SPDXID': 'SPDXRef-' + re.sub(r'[^A-Za-z0-9.-]', '-', name), 'versionInfo': version,
              'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False, 'licenseConcluded': 'NOASSERTION',
              'licenseDeclared': expression or 'NOASSERTION', 'copyrightText': 'NOASSERTION',
              'sourceInfo': 'files: ' + ' '.join(sorted(files)) if files else 'compiled into bin/tandem'}
    if not version:
        del result['versionInfo']
    else:
        result['externalRefs'] = [{'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl', 'referenceLocator':
                                   f'pkg:deb/debian/{name}@{version}?arch={architecture}'.replace('+', '%2B')}]
    if words and not expression:
        result['comment'] = f'Debian calls the licence: {words}'
    return result


def main(folder, version):
    folder, carried = pathlib.Path(folder), {}
    for name in COMPILED_IN:
        carried[package(name)] = []
    for line in sys.stdin:
        file, path = line.rstrip('\n').split('\t')
        carried.setdefault(owner(path), []).append(file)
    packages = [{'name': 'tandem', 'SPDXID': 'SPDXRef-tandem', 'versionInfo': version, 'downloadLocation': 'NOASSERTION',
                 'filesAnalyzed': False, 'licenseConcluded': 'Apache-2.0', 'licenseDeclared': 'Apache-2.0',
                 'copyrightText': 'NOASSERTION', 'primaryPackagePurpose': 'APPLICATION'}]
    (folder / 'licences/tandem').mkdir(parents=True)
    shutil.copy(pathlib.Path(__file__).resolve().parents[1] / 'LICENSE', folder / 'licences/tandem/copyright')
    for (name, number, architecture, source), files in sorted(carried.items(), key=lambda item: item[0][0]):
        text = source.read_text(encoding='utf-8', errors='replace') if source else ''
        if source:
            (folder / 'licences' / name).mkdir()
            shutil.copy(source, folder / 'licences' / name / 'copyright')
            for common in re.findall(r'/usr/share/(common-licenses/[\w.+-]*\w)', text):  # what the text refers to
                (folder / 'licences/common-licenses').mkdir(exist_ok=True)
                if os.path.isfile(f'/usr/share/{common}'):
                    shutil.copy(f'/usr/share/{common}', folder / 'licences' / common)
        packages.append(described(name, number, architecture, text, files))
    content = json.dumps(packages, indent=1)
    seconds = int(os.environ.get('SOURCE_DATE_EPOCH', datetime.datetime.now().timestamp()))
    document = {
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT', 'name': f'tandem-{version}',
        'documentNamespace': f'https://tandem.invalid/spdx/{uuid.uuid5(uuid.NAMESPACE_OID, content)}',
        'creationInfo': {'created': datetime.datetime.utcfromtimestamp(seconds).strftime('%Y-%m-%dT%H:%M:%SZ'),
                         'creators': ['Tool: tandem-tools-bundle']},
        'packages': packages,
        'relationships': [{'spdxElementId': 'SPDXRef-DOCUMENT', 'relationshipType': 'DESCRIBES',
                           'relatedSpdxElement': 'SPDXRef-tandem'}]
        + [{'spdxElementId': 'SPDXRef-tandem', 'relationshipType': 'DEPENDS_ON', 'relatedSpdxElement': entry['SPDXID']}
           for entry in packages[1:]]}
    (folder / 'tandem.spdx.json').write_text(json.dumps(document, indent=1) + '\n', encoding='utf-8')
    files = sorted(path for path in folder.rglob('*') if path.is_file() and path.name != 'SHA256SUMS')
    (folder / 'SHA256SUMS').write_text(''.join(
        f'{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n' for path in files), encoding='utf-8')


if __name__ == '__main__':
    main(*sys.argv[1:])
