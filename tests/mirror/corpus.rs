//! Patterns and the paths that they are asked about: `m77_excludes_are_what_git_ignores` asks git about
//! the same. A path that ends with a slash is a directory.

/// One set of patterns.
#[derive(Debug)]
pub(crate) struct Case {
    /// The text of each file of patterns, by the directory that it is in.
    pub(crate) files: &'static [(&'static str, &'static str)],
    pub(crate) paths: &'static [&'static str],
}

const fn case(
    files: &'static [(&'static str, &'static str)],
    paths: &'static [&'static str],
) -> Case {
    Case { files, paths }
}

pub(crate) const CASES: &[Case] = &[
    case(
        &[("", "foo\n")],
        &["foo", "a/foo", "foo/x", "foobar", "barfoo"],
    ),
    case(&[("", "/foo\n")], &["foo", "a/foo", "foo/x"]),
    case(
        &[("", "foo/\n")],
        &["foo/", "foo/x", "a/foo/", "a/foo/y", "b/foo"],
    ),
    case(&[("", "/foo/\n")], &["foo/x", "a/foo/x"]),
    case(&[("", "foo/bar\n")], &["foo/bar", "a/foo/bar", "foo/bar/x"]),
    case(
        &[("", "foo/bar/\n")],
        &["foo/bar/x", "x/foo/bar/y", "foo/b"],
    ),
    case(&[("", "a/foo/\n")], &["a/foo", "b/a/foo"]),
    case(
        &[("", "*.log\n")],
        &["x.log", "a/x.log", ".log", "x.log.1", "d.log/x"],
    ),
    case(&[("", "/*.log\n")], &["x.log", "a/x.log"]),
    case(&[("", "a/*.log\n")], &["a/x.log", "a/b/x.log"]),
    case(
        &[("", "*.log\n!keep.log\n")],
        &["x.log", "keep.log", "a/keep.log"],
    ),
    case(&[("", "!keep.log\n*.log\n")], &["keep.log", "x.log"]),
    case(&[("", "build/\n!build/keep\n")], &["build/keep", "build/x"]),
    case(
        &[("", "build/*\n!build/keep\n")],
        &["build/keep", "build/x", "build/d/keep"],
    ),
    case(&[("", "/*\n!/src\n")], &["src/a", "other", "x/src/b"]),
    case(
        &[("", "/*\n!/src/\n/src/*\n!/src/keep\n")],
        &["src/keep", "src/x", "y"],
    ),
    case(&[("", "**/foo\n")], &["foo", "a/foo", "a/b/foo", "foox"]),
    case(
        &[("", "**/foo/bar\n")],
        &["foo/bar", "a/foo/bar", "foo/x/bar"],
    ),
    case(&[("", "foo/**\n")], &["foo/a", "foo/a/b", "x/foo/a"]),
    case(&[("", "foo/**/\n")], &["foo/d/x", "foo/file"]),
    case(
        &[("", "a/**/b\n")],
        &["a/b", "a/x/b", "a/x/y/b", "b", "c/a/b"],
    ),
    case(&[("", "a/**/b/**/c\n")], &["a/b/c", "a/x/b/y/c", "a/c"]),
    case(&[("", "**\n")], &["x", "a/b"]),
    case(&[("", "**/\n")], &["x", "a/b"]),
    case(&[("", "**/*.o\n")], &["x.o", "a/b.o", "o"]),
    case(
        &[("", "foo**bar\n")],
        &["foobar", "fooxbar", "foo/bar", "a/fooxxbar"],
    ),
    case(&[("", "***\n")], &["x", "a/y"]),
    case(&[("", "?at\n")], &["cat", "at", "a/bat", "chat"]),
    case(&[("", "[cb]at\n")], &["cat", "bat", "rat"]),
    case(&[("", "[a-c]x\n")], &["ax", "cx", "dx"]),
    case(&[("", "[!a-c]x\n")], &["ax", "dx", "x"]),
    case(&[("", "[^a-c]x\n")], &["ax", "dx"]),
    case(&[("", "[0-9]z\n")], &["1z", "az"]),
    case(&[("", "x[]]y\n")], &["x]y", "xay"]),
    case(&[("", "x[a-]y\n")], &["x-y", "xay", "xby"]),
    case(&[("", "\\#hash\n#hash\n")], &["#hash", "hash"]),
    case(&[("", "\\!bang\n!bang\n")], &["!bang", "bang"]),
    case(&[("", "trail  \n")], &["trail", "trail  "]),
    case(&[("", "trail\\ \n")], &["trail ", "trail"]),
    case(&[("", "\n\n   \nfoo\n")], &["foo", "   ", "x"]),
    case(&[("", "foo\r\nbar\r\n")], &["foo", "bar"]),
    case(&[("", "foo")], &["foo", "x"]),
    case(&[("", " lead\n")], &[" lead", "lead"]),
    case(&[("", "a b\n")], &["a b", "a", "b"]),
    case(&[("", "\\*star\n")], &["*star", "xstar"]),
    case(&[("", "back\\\\slash\n")], &["back\\slash", "backslash"]),
    case(&[("", "a\\bc\n")], &["abc", "a\\bc"]),
    case(&[("", "{a,b}\n")], &["{a,b}", "a", "b"]),
    case(&[("", "a{1,2}.txt\n")], &["a{1,2}.txt", "a1.txt"]),
    case(&[("", "(x|y)+$\n")], &["(x|y)+$", "x", "xy"]),
    case(&[("", "Foo\n")], &["foo", "Foo", "FOO"]),
    case(&[("", ".*\n")], &[".hid", "a/.hid", ".d/x", "vis"]),
    case(
        &[("", "*\n!*/\n!*.c\n")],
        &["a.c", "a.h", "d/e/a.c", "d/e/a.h"],
    ),
    case(&[("", "*.[oa]\n")], &["x.o", "x.a", "x.so", "x.b"]),
    case(
        &[("", "node_modules\n")],
        &["node_modules/a/b", "p/node_modules/c", "node_modules2/d"],
    ),
    case(&[("", "/a/b/../c\n")], &["a/c", "a/b/c"]),
    case(&[("", "./foo\n")], &["foo", "a/foo"]),
    case(&[("", "foo//bar\n")], &["foo/bar", "foo/x/bar"]),
    case(&[("", "//foo\n")], &["foo", "a/foo"]),
    case(&[("", "/\n")], &["x", "a/y"]),
    case(&[("", "!\n")], &["x", "!"]),
    case(&[("", "*/foo\n")], &["a/foo", "foo", "a/b/foo"]),
    case(&[("", "/*/foo\n")], &["a/foo", "b/c/foo"]),
    case(
        &[("", "doc/*.txt\n")],
        &["doc/notes.txt", "doc/server/arch.txt"],
    ),
    case(
        &[("", "abc/**/def*\n")],
        &["abc/def", "abc/x/y/defg", "abc/xdef"],
    ),
    case(
        &[("", "logs/**/debug.log\n")],
        &[
            "logs/debug.log",
            "logs/monday/debug.log",
            "logs/monday/pm/debug.log",
            "debug.log",
        ],
    ),
    case(&[("", "ä*\n")], &["äb", "aä", "x/ä"]),
    case(&[("", "?x\n")], &["äx", "ax"]),
    case(&[("", "a/?/b\n")], &["a/x/b", "a/xy/b"]),
    case(&[("", "*foo*\n")], &["xfooy", "foo", "d/afoo/x"]),
    case(&[("", "foo/*/\n")], &["foo/d/x", "foo/f"]),
    case(&[("", "foo/*\n!foo/d/\n")], &["foo/d/x", "foo/f"]),
    case(&[("", "foo*/\n")], &["food/x", "foof"]),
    case(&[("", "x/*/y/\n")], &["x/1/y/z", "x/1/2/y/z", "x/1/q"]),
    case(&[("", "[!.]*\n")], &["a", ".b"]),
    case(
        &[("", "secret.*\n!secret.txt\nsecret.txt\n")],
        &["secret.txt", "secret.key"],
    ),
    case(
        &[("", "*.log\n"), ("d", "!keep.log\n")],
        &["d/keep.log", "keep.log", "d/x.log", "d/e/keep.log"],
    ),
    case(&[("", "d/*\n"), ("d", "!x\n")], &["d/x", "d/y"]),
    case(&[("", "d/\n"), ("d", "!x\n")], &["d/x"]),
    case(&[("a", "/x\n")], &["a/x", "a/b/x", "x"]),
    case(&[("a", "b/x\n")], &["a/b/x", "b/x", "a/c/b/x"]),
    case(
        &[("a", "*.o\n"), ("a/b", "!k.o\n"), ("a/b/c", "k.o\n")],
        &["a/k.o", "a/b/k.o", "a/b/c/k.o"],
    ),
    case(
        &[("", "/a/*\n!/a/b/\n"), ("a/b", "*\n!.gitignore\n!ok\n")],
        &["a/x", "a/b/ok", "a/b/no"],
    ),
    case(&[("a", "!x\n"), ("", "x\n")], &["x", "a/x", "b/x"]),
    case(&[("a/b", "**/z\n")], &["a/b/z", "a/b/c/z", "a/z"]),
    case(&[("a", "foo/**\n")], &["a/foo/x", "foo/x"]),
];
