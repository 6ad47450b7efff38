# Takes the helper, L bytes, from standard input into directory I, proves it, and puts it in place;
# where nothing can prove it, it keeps a name of its own for one start.
dir $I;
kept || { say failed "$d" "it is not ours any more"; exit 0; };

# What was left by uploads that were cut off.
find "$d" -name ".new-*" -mmin +60 -exec rm -f {} + 2>/dev/null;
find "$d" -name ".try-*" -mmin +60 -exec rm -f {} + 2>/dev/null;

x=$d/.new-$N;
lost() {
    rm -f "$x";
    case $1 in
    *" space "*|*" quota "*) say full "$d" "$1";;
    *) say failed "$d" "$1";;
    esac;
    exit 0;
};

e=$( { set -C; LC_ALL=C cat >"$x"; } 2>&1) || lost "$e";
e=$(LC_ALL=C sync "$x" 2>&1) || lost "$e";
[ $(wc -c <"$x") -eq "$L" ] || lost "it did not come whole";
chmod 500 "$x";
[ -n "$sum" ] || { say taken ".new-$N"; exit 0; };

command exec 9<"$x"; hash;
[ "$h" = "$D" ] || lost "it came altered";
g=$d/$f;
if [ -L "$g" ] || [ -d "$g" ]; then rm -rf "$g"; fi;
e=$(LC_ALL=C mv -f "$x" "$g" 2>&1) || lost "$e";
sync "$d" 2>/dev/null;
say taken "$f"
