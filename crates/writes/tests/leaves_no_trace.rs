//! Small programs that write, each under each way and as each kind of user: what they read back is what they wrote,
//! and the files are afterwards what they were, byte for byte, name for name, mode for mode.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::{fs, path::Path};

use support::{As, PLAIN, Place, has_way, is_root};

/// (what, program, what it prints). They run in the folder `tree` below; `$OUT` is a folder beside it.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("overwrites", "echo new > a; cat a", "new\n"),
    ("appends", "echo more >> a; cat a; wc -l < a", "one\nmore\n2\n"),
    ("truncates", "truncate -s 2 a; cat a; truncate -s 0 b; wc -c < b", "on0\n"),
    (
        "deletes",
        "rm a; ls; cat a 2>&1; echo back > a; cat a",
        "b\nd\nempty\nlink\nlinked\nlocked\nout\nshut\ncat: a: No such file or directory\nback\n",
    ),
    (
        "renames a file",
        "mv a c; cat c; ls a 2>&1; mv c b; cat b",
        "one\nls: cannot access 'a': No such file or directory\none\n",
    ),
    (
        "renames a folder",
        "mv d e; cat e/x e/deep/y; ls -d d 2>&1; echo n > e/n; ls e",
        "ex\nwhy\nls: cannot access 'd': No such file or directory\ndeep\nn\nx\n",
    ),
    (
        "renames a folder to and fro",
        "mv d e; mkdir d; echo n > d/n; ls d; rm -r d; mv e d; cat d/x; ls d",
        "n\nex\ndeep\nx\n",
    ),
    (
        "removes a tree",
        "rm -rf d; ls -d d 2>&1; mkdir d; ls -A d; echo z > d/z; cat d/*",
        "ls: cannot access 'd': No such file or directory\nz\n",
    ),
    (
        "removes a folder that is not empty",
        "rmdir d 2>&1; rmdir empty; ls -d empty 2>&1",
        "rmdir: failed to remove 'd': Directory not empty\nls: cannot access 'empty': No such file or directory\n",
    ),
    (
        "copies a tree",
        "cp -r d e; echo n > e/x; cat e/x d/x e/deep/y; cp -a d/. empty; ls empty",
        "n\nex\nwhy\ndeep\nx\n",
    ),
    ("edits in place", "sed -i s/one/two/ a; cat a; ls | wc -l", "two\n9\n"),
    (
        "packs and unpacks",
        "tar cf t.tar d && rm -r d && tar xf t.tar && cat d/deep/y; tar tf t.tar | sort | tail -1",
        "why\nd/x\n",
    ),
    ("writes through a link", "echo via > link; cat a; readlink link", "via\na\n"),
    (
        "replaces a link",
        "ln -sfn b link; cat link; readlink link; rm link; ls link 2>&1",
        "two\nb\nls: cannot access 'link': No such file or directory\n",
    ),
    (
        "follows a link out of the tree",
        "echo n > out/far; cat out/far $OUT/far; ls out/",
        "n\nn\nfar\n",
    ),
    (
        "links a folder and writes into it",
        "ln -s d s; echo n > s/x; cat d/x; cd s; pwd -P | sed 's/.*tree/tree/'; cat ../a",
        "n\ntree/d\none\n",
    ),
    ("links hard", "ln a h; echo n > h; cat a h; stat -c %h a", "n\nn\n2\n"),
    (
        "changes modes and times",
        "chmod 600 a; stat -c %a a; touch -d 2001-02-03 b d; stat -c %y b d | cut -c1-10; chmod 700 d; stat -c %a d; cat d/x",
        "600\n2001-02-03\n2001-02-03\n700\nex\n",
    ),
    (
        "goes where it made a folder",
        "mkdir -p new/deep; cd new/deep; echo f > f; pwd | sed 's/.*tree/tree/'; cat ../deep/f ../../a; ls ../..  | wc -l; mkdir x; cd ..; mv deep shallow; cd shallow/x; pwd | sed 's/.*tree/tree/'",
        "tree/new/deep\nf\none\n10\ntree/new/shallow/x\n",
    ),
    (
        "runs what it wrote",
        "printf '#!/bin/sh\\necho ran $1\\n' > run; chmod +x run; ./run 1; mkdir bin; mv run bin; PATH=$PWD/bin:$PATH; run 2; sh bin/run 3",
        "ran 1\nran 2\nran 3\n",
    ),
    (
        "runs a binary that it copied",
        "cp /usr/bin/echo say; ./say hi; mkdir b2; cp -p say b2; cd b2; ./say ho",
        "hi\nho\n",
    ),
    (
        "clears the environment",
        "env -i /bin/sh -c 'echo n > a; rm b; cat a; ls b 2>&1'",
        "n\nls: cannot access 'b': No such file or directory\n",
    ),
    (
        "many children at once",
        "for i in 1 2 3 4 5 6 7 8; do (mkdir -p p/$i; echo $i > p/$i/f; mv p/$i/f p/$i/g) & done; wait; cat p/*/g | tr -d '\\n'; echo; ls p | wc -l",
        "12345678\n8\n",
    ),
    (
        "meets what may not be written",
        "echo n 2>/dev/null > shut/new || true; cat shut/f; chmod 644 locked; echo n > locked; cat locked",
        "shut\nn\n",
    ),
    (
        "writes to standard output by its names",
        "{ for n in /dev/stdout /dev/fd/1 /proc/self/fd/1; do echo x > $n; done; echo n > /dev/null; } | cat; cat /proc/self/comm",
        "x\nx\nx\ncat\n",
    ),
    (
        "makes a fifo",
        "mkfifo p; (echo through > p) & cat p; wait; test -p p && rm p && ls p 2>&1",
        "through\nls: cannot access 'p': No such file or directory\n",
    ),
    (
        "reads what was there",
        "cat a b d/x d/deep/y link linked/x shut/f | tr '\\n' ' '; find . | sort | tr '\\n' ' '; ls -A empty",
        "one two ex why one ex shut . ./a ./b ./d ./d/deep ./d/deep/y ./d/x ./empty ./link ./linked ./locked ./out ./shut ./shut/f ",
    ),
    (
        "lists what changed",
        "rm d/x; touch d/n; find d | sort | tr '\\n' ' '; ls -a d/deep | tr '\\n' ' '; rm d/deep/y; ls -A d/deep; find . -name 'n*'",
        "d d/deep d/deep/y d/n . .. y ./d/n\n",
    ),
    (
        "deep trees",
        "mkdir -p 1/2/3/4/5/6/7/8; touch 1/2/3/4/5/6/7/8/f; cp -r 1 one; mkdir -p d/1/2/3/4/5/6; touch d/1/2/3/f; rm -rf d 1; ls; find one | wc -l",
        "a\nb\nempty\nlink\nlinked\nlocked\none\nout\nshut\n9\n",
    ),
    (
        "keeps its temporary files",
        "t=$(mktemp); echo n > $t; cat $t; rm $t; t=$(mktemp -d); echo m > $t/f; cat $t/f; rm -r $t",
        "n\nm\n",
    ),
    (
        "a database",
        "sqlite3 db 'create table t(x); insert into t values(1),(2);'; sqlite3 db 'pragma journal_mode=wal; insert into t values(3); select sum(x) from t;'; ls db",
        "wal\n6\ndb\n",
    ),
    (
        "a repository",
        "git init -q . && git config user.email a@b && git config user.name n && git add a b && git commit -qm first && echo n > a && git commit -qam second && git checkout -q HEAD~1 && cat a && git log --oneline --all | wc -l && git gc -q && git status --short a",
        "one\n2\n",
    ),
    (
        "a compiler",
        "printf '#include <stdio.h>\\n#include <fstream>\\nint main(){{std::ofstream(\"cc\")<<\"stream\";}rename(\"cc\",\"a\");FILE*f=freopen(\"b\",\"w\",stdout);puts(\"re\");fclose(f);}' > p.cc; g++ -o p p.cc && ./p && cat a b",
        "streamre\n",
    ),
    (
        "a static program",
        "printf '#include <fcntl.h>\\n#include <unistd.h>\\nint main(){int f=open(\"a\",O_WRONLY|O_TRUNC);write(f,\"raw\\\\n\",4);unlink(\"b\");}' > p.c; gcc -static -o p p.c && ./p && cat a; ls b 2>&1",
        "raw\nls: cannot access 'b': No such file or directory\n",
    ),
];

/// The same of Python programs.
const PYTHON: &[(&str, &str, &str)] = &[
    (
        "replaces a file whole",
        "import os\nopen('a.tmp','w').write('n'); os.replace('a.tmp','a'); print(open('a').read(), sorted(os.listdir())[:2])",
        "n ['a', 'b']\n",
    ),
    (
        "rmtree, makedirs, scandir",
        "import os, shutil\nshutil.rmtree('d'); os.makedirs('d/e/f'); print([it.name for it in os.scandir('d')], os.path.exists('d/x'))\nshutil.copytree('d','k'); shutil.move('k','k2'); print(sorted(os.listdir('k2'))); shutil.rmtree('k2')\nshutil.rmtree('linked/deep')\nprint(os.path.exists('linked'))",
        "['e'] False\n['e']\n",
    ),
    (
        "a memory map",
        "import mmap\nf=open('a','r+b'); m=mmap.mmap(f.fileno(),0); m[0:1]=b'X'; m.flush(); print(open('a').read().strip())\ng=open('m','w+b'); g.truncate(8192); m=mmap.mmap(g.fileno(),8192); m[5000]=7; print(open('m','rb').read()[5000])",
        "Xne\n7\n",
    ),
    (
        "a file without a name",
        "import os\nfd=os.open('.',os.O_TMPFILE|os.O_RDWR,0o600); os.write(fd,b'nameless'); os.link(f'/proc/self/fd/{fd}','named',src_dir_fd=os.open('.',0)); print(open('named').read())",
        "nameless\n",
    ),
    (
        "its folder is deleted",
        "import os\nos.mkdir('g'); os.chdir('g'); os.rmdir('../g')\ntry: open('x','w')\nexcept OSError as e: print(e.errno)\ntry: os.getcwd()\nexcept OSError as e: print(e.errno)",
        "2\n2\n",
    ),
    (
        "descriptors",
        "import os\nfd=os.open('a',os.O_RDONLY); os.fchmod(fd,0o600); print(oct(os.stat('a').st_mode&0o777)); d=os.open('d',os.O_RDONLY); f=os.open('x',os.O_WRONLY|os.O_TRUNC,dir_fd=d); os.write(f,b'at'); os.close(f); print(open('d/x').read()); os.mkdir('q',dir_fd=d); os.rename('x','q/x',src_dir_fd=d,dst_dir_fd=d); print(os.listdir('d/q')); os.unlink('q/x',dir_fd=d); os.fchdir(d); print(os.listdir('q'), os.getcwd()[-6:]); os.utime(fd); print(os.readlink(f'/proc/self/fd/{d}')[-6:])",
        "0o600\nat\n['x']\n[] tree/d\ntree/d\n",
    ),
    (
        "real paths",
        "import os\nos.makedirs('n/m'); os.symlink('n/m','l'); print(os.path.realpath('l')[-8:], os.path.samefile('l','n/m'), os.path.realpath('linked')[-6:]); os.chdir('l'); print(os.getcwd()[-8:], os.path.exists('../../a'))",
        "tree/n/m True tree/d\ntree/n/m True\n",
    ),
    (
        "threads and processes",
        "import os, subprocess, multiprocessing as mp, threading\ndef w(i):\n    os.makedirs(f't/{i}',exist_ok=True); open(f't/{i}/f','w').write(str(i)); os.rename(f't/{i}/f',f't/{i}/g')\nts=[threading.Thread(target=w,args=(i,)) for i in range(8)]; [t.start() for t in ts]; [t.join() for t in ts]\nwith mp.get_context('fork').Pool(3) as p: p.map(w,range(8,16))\nprint(sum(int(open(f't/{i}/g').read()) for i in range(16)))\nprint(subprocess.run(['cat','t/3/g'],capture_output=True).stdout, subprocess.check_output('echo $(cat t/4/g) > t/s; cat t/s',shell=True))",
        "120\nb'3' b'4\\n'\n",
    ),
    (
        "sockets",
        "import socket, os\nd='some/folder/with/a/long/name/'*4; os.makedirs(d)\nfor n in ('s', d+'s'):\n    if n!='s': os.chdir(d); n='s'\n    s=socket.socket(socket.AF_UNIX); s.bind(n); s.listen(1); c=socket.socket(socket.AF_UNIX); c.connect(n); a,_=s.accept(); c.send(b'hi'); print(a.recv(2), s.getsockname(), c.getpeername()); os.unlink(n)\nimport multiprocessing as mp\nwith mp.get_context('fork').Manager() as m: print(m.dict(a=1))",
        "b'hi' s s\nb'hi' s s\n{'a': 1}\n",
    ),
    (
        "shared memory and semaphores",
        "import multiprocessing as mp\nfrom multiprocessing import shared_memory as sm\ns=sm.SharedMemory(create=True,size=64); s.buf[0]=9; t=sm.SharedMemory(s.name); print(t.buf[0]); t.close(); s.close(); s.unlink(); l=mp.Lock(); l.acquire(); l.release(); q=mp.SimpleQueue(); q.put(3); print(q.get())",
        "9\n3\n",
    ),
    (
        "sqlite",
        "import sqlite3\nfor m in ('delete','wal'):\n    c=sqlite3.connect('db'); c.execute(f'pragma journal_mode={m}'); c.execute('create table if not exists t(x)'); c.execute('insert into t values(1)'); c.commit(); c.close()\nprint(sqlite3.connect('db').execute('select count(*) from t').fetchone())",
        "(2,)\n",
    ),
    (
        "metadata",
        "import os\nos.setxattr('a','user.k',b'v'); print(os.getxattr('a','user.k')); os.truncate('b',1); print(os.stat('b').st_size); s=os.stat('d'); open('d/new','w'); t=os.stat('d'); print(s.st_ino==t.st_ino, s.st_mode==t.st_mode, s.st_uid==t.st_uid)\nfd=os.open('d',os.O_RDONLY); print(os.path.samestat(os.fstat(fd),os.lstat('d')))",
        "b'v'\n1\nTrue True True\nTrue\n",
    ),
    (
        "renames what was there",
        "import os\nos.rename('d','e2'); print(sorted(os.listdir('e2')), os.path.exists('d')); os.rename('e2/deep','d'); print(os.listdir('d')); os.replace('a','d/y'); print(open('d/y').read()); os.chdir('e2'); os.rename('../d','../empty'); print(os.listdir('../empty'))",
        "['deep', 'x'] False\n['y']\none\n\n['y']\n",
    ),
    (
        "exclusive creation",
        "import os\ntry: os.open('a',os.O_CREAT|os.O_EXCL|os.O_WRONLY)\nexcept FileExistsError: print('exists')\nos.unlink('a'); os.close(os.open('a',os.O_CREAT|os.O_EXCL|os.O_WRONLY)); print(os.stat('a').st_size)\ntry: os.mkdir('d')\nexcept FileExistsError: print('exists')\ntry: os.rename('d','empty'); print(os.listdir('empty')!=[])\nexcept OSError as e: print(e)\ntry: os.rename('b','shut')\nexcept IsADirectoryError: print('a folder')",
        "exists\n0\nexists\nTrue\na folder\n",
    ),
];

fn has(program: &str) -> bool {
    Path::new("/usr/bin").join(program).exists()
        || Path::new("/usr/local/bin").join(program).exists()
}

/// Programs of other people that not every machine has.
fn can_run(script: &str) -> bool {
    ["sqlite3", "git", "g++", "gcc"].iter().all(|it| !script.contains(&format!("{it} ")) || has(it))
}

fn programs()
-> impl Iterator<Item = (&'static str, &'static (&'static str, &'static str, &'static str))> {
    let shell = PROGRAMS.iter().filter(|it| can_run(it.1)).map(|it| ("sh", it));
    shell.chain(PYTHON.iter().map(|it| ("python3", it)).filter(|_| has("python3")))
}

/// What is expected below is what these programs print without us.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn the_table_is_true() {
    let user = if is_root() { As::Root } else { As::User };
    for (interpreter, (what, script, expected)) in programs() {
        let (out, err) = Place::new(user).run(user, PLAIN, &[interpreter, "-c", script]);
        assert_eq!(out, *expected, "{what}: {err}");
    }
}

/// All programs in one world each, one after the other.
fn all_leave_no_trace(user: As, way: &str) {
    let place = Place::new(user);
    let before = place.picture();
    let mut wrong = Vec::new();
    let mut n = 0;
    for (interpreter, (what, script, expected)) in programs() {
        let (out, err) = place.run(user, way, &[interpreter, "-c", script]);
        if out != **expected {
            wrong.push(format!("{what}: printed {out:?}, not {expected:?}\n{err}"));
        }
        let after = place.picture();
        for it in before.iter().filter(|it| !after.contains(it)) {
            wrong.push(format!("{what}: changed or removed {it}"));
        }
        for it in after.iter().filter(|it| !before.contains(it)) {
            wrong.push(format!("{what}: made {it}"));
        }
        n += 1;
    }
    let left: Vec<_> =
        fs::read_dir(place.path().join("cache/plimsoll-cache/layers")).unwrap().collect();
    assert!(wrong.is_empty(), "{user:?}, {way}:\n{}", wrong.join("\n"));
    assert!(left.is_empty(), "layers are left: {left:?}");
    assert!(20 < n, "only {n} programs ran");
}

fn check(user: As, way: &str) {
    let needs_root = matches!(user, As::Root | As::RootInContainer);
    if needs_root == is_root() || (is_root() && !needs_root) {
        if has_way(user, way) {
            all_leave_no_trace(user, way);
        } else {
            // A kernel without ptrace and seccomp is not one that we know.
            assert_ne!(way, "traced", "{user:?}");
        }
    }
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn as_root_in_a_mount_namespace() {
    check(As::Root, "mounts");
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn as_root_in_a_user_namespace() {
    check(As::Root, "user");
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn as_root_traced() {
    check(As::Root, "traced");
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn as_a_user_in_a_user_namespace() {
    check(As::User, "user");
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn as_a_user_traced() {
    check(As::User, "traced");
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn in_a_container_traced() {
    check(As::RootInContainer, "traced");
    check(As::UserInContainer, "traced");
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn a_container_has_no_namespaces() {
    for user in [As::RootInContainer, As::UserInContainer] {
        let place = Place::new(user);
        for way in ["mounts", "user"] {
            let (out, err) = place.run(user, way, &["echo", "yes"]);
            assert_eq!(out, "");
            assert!(err.contains("the kernel refuses a"), "{err}");
            assert!(err.contains("`--writes through`"), "{err}");
        }
    }
}
