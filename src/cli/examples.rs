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

The exit status is the agent's own, 128 + N when signal N ended it, 125 when
labproxy itself failed, 126 when the agent is not executable, 127 when it was
not found.";

pub(super) const SESSION_TOPUP: &str = "\
Example:
  labproxy session topup ses_k3 0.50";

pub(super) const SESSION_RESUME: &str = "\
Examples:
  labproxy session resume ses_k3 -- claude --continue
  labproxy session resume ses_k3 --reopen -- claude
                                after a session that was closed for cause";
