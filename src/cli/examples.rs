//! Examples that the help texts end with.

pub(super) const SESSION_START: &str = "\
Examples:
  labproxy session start --cap 2 -- claude -p \"fix the failing test\"
  labproxy session start --cap 5 -- claude
                                an interactive agent, in this terminal
  labproxy session start --cap 5 --detach --receipt run.json -- claude -p \"…\"
                                in the background; prints the session's name
  labproxy session start --cap 1
                                no agent: prints what to export for your own, and
                                serves until it is stopped
  labproxy session start --cap 1 --upstream http://127.0.0.1:9999 -- claude
                                against a stand-in, which gets no real key
  labproxy session start --cap 1 --credential oauth:env:TOKEN -- claude
                                with an OAuth token from a variable
  labproxy session start --cap 5 --host gpu1 -- claude -p \"…\"
                                the agent works on gpu1, the key stays here
  labproxy session start --cap 5 --host gpu1 --workspace . -- claude -p \"…\"
                                it works there on this directory; its work comes back

The exit status is the agent's own, 128 + N when signal N ended it, 125 when
labproxy itself failed, 126 when the agent is not executable, 127 when it was
not found.";

pub(super) const SESSION_TOPUP: &str = "\
Example:
  labproxy session topup ses_k3 0.50";

pub(super) const SESSION_RESUME: &str = "\
Examples:
  labproxy session resume ses_k3 -- claude --continue
  labproxy session resume ses_k3
                                no agent: brings here the work that its host kept
  labproxy session resume ses_k3 --reopen -- claude
                                after a session that was closed for cause";

pub(super) const HOST_CHECK: &str = "\
Examples:
  labproxy host check gpu1
  labproxy host check ada@gpu.lab.example --json

Each line is a step, what came of it, and its time. Warnings concern what a
session does without. The exit status is 0 when a session would start, 1 when it
would not, 2 when the command line or the configuration is wrong.";

pub(super) const MIRROR_PUSH: &str = "\
Examples:
  labproxy mirror push . gpu1:work
  labproxy mirror push . gpu1:work --dry-run

The other end must be absent or empty at the first push, and afterwards what it was
after the last push or pull: what somebody changed there is never overwritten
unseen. Each file that arrives is read again there, and one hash proves the whole
tree. The exit status is 0 when the other end is the directory here, 1 when it is
not, 2 when the command line or the configuration is wrong.";

pub(super) const MIRROR_COPY_IN: &str = "\
Examples:
  labproxy mirror copy-in data.tar.zst . gpu1:work --to data
  labproxy mirror copy-in ../fixtures . gpu1:work --dry-run
  labproxy mirror copy-in fix.tgz --session ses_k3 --replace

Everything is read and judged before anything is changed: absolute paths, '..', links,
devices, setuid bits, a name twice, more than a mirror may have. Files that are there
and are other ones are listed, unless --replace replaces them. Then it pushes as
'mirror push' does. The exit status is 0 when both are done, 1 when something was
refused or not done, 2 when the command line is wrong or the archive cannot be read.";

pub(super) const MIRROR_STATUS: &str = "\
Examples:
  labproxy mirror status . gpu1:work

Reads both ends whole and says what changed on each since the last push or pull, which
generation is the last, and what of it is held back. Nothing is changed. The exit
status is 0 whatever is found, 1 when an end cannot be read, 2 when the command line is
wrong or the two were never mirrored.";

pub(super) const MIRROR_DIFF: &str = "\
Examples:
  labproxy mirror diff . gpu1:work
  labproxy mirror diff . gpu1:work --json

One line a path: here (only the directory here has it), there (only the other end),
differs (both, and not the same), held (waits for 'mirror accept'). Nothing is changed.
The exit status is 0 when nothing differs, 1 when something does or an end cannot be
read.";

pub(super) const MIRROR_VERIFY: &str = "\
Examples:
  labproxy mirror verify . gpu1:work

Reads every byte of the last generation again and compares it with its hash, and both
ends with what they agreed on. The exit status is 0 when all is what it was, 1 when
something is not, which is listed.";

pub(super) const MIRROR_ACCEPT: &str = "\
Examples:
  labproxy mirror accept . gpu1:work .envrc
  labproxy mirror accept . gpu1:work .vscode
  labproxy mirror accept --session ses_k3 .envrc

A pull leaves out of the directory here what a program of yours would run by itself:
git configuration and hooks, settings of editors and agents. Look at it in the
generation, then let it in. The exit status is 0 when it is in, 1 when it could not
be changed, 2 when nothing is held back at the path.";

pub(super) const MIRROR_LIST: &str = "\
Examples:
  labproxy mirror list . gpu1:work
  labproxy mirror list . gpu1:work --json

Each pull that finds something new makes a generation: an exact copy that is never
changed again.";

pub(super) const MIRROR_PULL: &str = "\
Examples:
  labproxy mirror pull . gpu1:work
  labproxy mirror pull . gpu1:work --generation-only
  labproxy mirror pull --session ses_k3

A pull first makes a generation: an exact copy that is kept and never changed, each
byte of it proven. Then the directory here is brought to it; what you edited here
since the last push or pull stops that, and is never lost. The exit status is 0 when
both are done, 1 when they are not, 2 when the command line or the configuration is
wrong.";

pub(super) const AUDIT_RUN: &str = "\
Examples:
  labproxy audit run -- pytest -q
  labproxy audit run --session ses_k3 --timeout 10m -- ./check.sh
  labproxy audit run --network -- pip-audit -r requirements.txt
  labproxy audit run --restore -- black .
  labproxy audit run tests

The workspace is pulled into a generation, and the policy of [audit] judges it: links,
special and setuid files, sizes, denied paths. The tool then looks at a private copy, in
a sandbox that has nothing of yours: no keys, no home, no network unless it is asked
for. Its copy is /workspace, also as LABPROXY_AUDIT_WORKSPACE; LABPROXY_AUDIT_TREE is the
hash of what it looks at. Afterwards the copy is read again.

With --restore the tool may change its copy. When it passes and the policy refuses
nothing of what it made, that becomes the workspace here and on the host; what was changed
at either end meanwhile stops it, by name, and is not overwritten.

The exit status is the tool's own, 128 + N when signal N ended it; 123 when the policy
refuses something, or the tool passed but altered its input; 124 when its time was over;
125 when labproxy itself failed, or a change could not be brought to both ends; 126 when the tool is not executable, 127 when it was not
found.";

pub(super) const AUDIT_TOOLS: &str = "\
Examples:
  labproxy audit tools
  labproxy audit tools --json

The tools of the configuration, each run by its name: labproxy audit run NAME. One is

  [audit.tool.format]
  command = [\"black\", \".\"]
  push = true        # what it changes becomes the work, here and on the host

and it may have pull (look at the host's work first: true), network and timeout.";

pub(super) const AUDIT_LIST: &str = "\
Examples:
  labproxy audit list
  labproxy audit list --session ses_k3 --json";

pub(super) const AUDIT_SHOW: &str = "\
Example:
  labproxy audit show 3";

pub(super) const AUDIT_DIFF: &str = "\
Examples:
  labproxy audit diff 2 3
  labproxy audit diff 2 3 --json

Prints what makes the tree of audit 2 that of audit 3 as unified diffs, names and lines
escaped. The exit status is 0 when nothing differs, 1 when something does or a tree is
no longer kept.";

pub(super) const AUDIT_VERIFY: &str = "\
Examples:
  labproxy audit verify

Recomputes the ledger's chain, in which every audit stands, and reads every content of
every generation that was audited again, without the host. The exit status is 0 when all
is what it was, 1 when something is not, which is listed.";

pub(super) const AUDIT_RESTORE: &str = "\
Examples:
  labproxy audit restore 2

Makes the workspace here what audit 2 looked at, and pushes it to the host. What changed
on the host since the last push or pull is kept in a generation first; what was edited
here stops it, with the list. What is excluded stays as it is, and what programs run by
themselves waits as after a pull. The exit status is 0 when both ends are as they were, 1
when they are not, 2 when the command line or the configuration is wrong.";
