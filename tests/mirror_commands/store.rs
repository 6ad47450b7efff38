//! A mirror's own store that somebody changed.

use crate::rig::Rig;

/// A damaged newest generation stops a pull with what helps, and that helps: nothing is lost, and the next
/// pull publishes the other end's tree.
#[test]
fn a_damaged_generation_is_put_aside() {
    let rig = Rig::new();
    rig.write("far/a", "text");
    rig.pull("");
    let mirrors = rig.path("home/.local/state/labproxy/mirrors");
    let mirror = std::fs::read_dir(mirrors).unwrap().next().unwrap().unwrap();
    let generation = mirror.path().join("store/generation-0000000001");
    let mut bytes = std::fs::read(&generation).unwrap();
    let last = bytes.last_mut().unwrap();
    *last ^= 1;
    std::fs::write(&generation, bytes).unwrap();
    rig.write("far/a", "another text");
    let refused = rig.mirror("pull", "").expect(1);
    let said = &refused.stderr;
    assert!(said.contains(generation.to_str().unwrap()), "{said}");
    assert!(said.contains("damaged"), "{said}");
    assert!(said.contains("hint: rename that file"), "{said}");
    assert_eq!(rig.read("local/a"), b"text");
    let aside = generation.with_extension("damaged");
    std::fs::rename(&generation, &aside).unwrap();
    rig.pull("");
    assert_eq!(rig.read("local/a"), b"another text");
    assert!(generation.exists() && aside.exists());
}
