# Finds the helper by its content and becomes it in role R; else finds a directory for it, asks for
# it, and waits for a word: "go" looks again, "skip I" tries the other directories, "anew NAME"
# takes the file of this name, which was made for this one start. A is the helper's architecture,
# S the numbers of directories that failed. With E it is started by sudo, which closes what is open:
# this shell stays beside it and holds the file, and the role learns whose home the login has.
say shell;
m=$(uname -sm); o=${m%% *}; m=${m#* };
[ "$o" = Linux ] || { say system "$o"; exit 0; };
[ "$m" = "$A" ] || { say architecture "$m"; exit 0; };
[ -d /proc/self/fd ] || { say cannot "/proc is not mounted"; exit 0; };

first() { printf "%s" "$1" | head -n 1; };

# What was hashed is what is executed: the open file, whatever its name leads to by now.
run() {
    cd /;
    if [ -n "$E" ]; then
        e=$(LC_ALL=C sudo -n true 2>&1 </dev/null) ||
            { say cannot "the host is configured with sudo = true, and sudo -n says: $(first "$e")"; exit 0; };
        LC_ALL=C sudo -n env "LABPROXY_LOGIN_HOME=$HOME" "/proc/$$/fd/9" "$R" "$N";
        exit $?;
    fi;
    PATH=$p; exec /proc/self/fd/9 "$R" "$N";
};

look() {
    for i in 1 2 3 4; do
        dir $i; g=$d/$f;
        if [ -n "$d" ] && kept && [ -f "$g" ] && [ ! -L "$g" ] && [ -r "$g" ]; then
            command exec 9<"$g"; hash;
            [ "$h" = "$D" ] && [ -x /proc/self/fd/9 ] && run;
            exec 9<&-;
        fi;
    done;
};

refuse() { rm -f "$x"; say refused "$d" "$1"; };

# Sets e to what a command complains of.
place() {
    for i in 1 2 3 4; do
        case " $S " in *" $i "*) continue;; esac;
        dir $i; [ -n "$d" ] || continue;
        x=$d/.try-$N;
        [ -d "$d" ] || e=$( { [ $i != 1 ] || LC_ALL=C mkdir -p "${d%/*}"; LC_ALL=C mkdir "$d"; } 2>&1);
        if [ -L "$d" ]; then say refused "$d" "is a link"; continue; fi;
        if [ ! -d "$d" ]; then say refused "$d" "$(first "$e")"; continue; fi;
        if [ ! -O "$d" ]; then say refused "$d" "belongs to somebody else"; continue; fi;
        if ! kept; then say refused "$d" "is open to others"; continue; fi;
        e=$( { set -C; printf "%s\n" "#!/bin/sh" "exit 0" | LC_ALL=C cat >"$x"; } 2>&1) ||
            { refuse "$(first "$e")"; continue; };
        chmod 700 "$x";
        "$x" 2>/dev/null || { refuse "runs no programs"; continue; };
        rm -f "$x"; say want $i "$d"; return 0;
    done;
    say nowhere; exit 0;
};

while :; do
    [ -z "$sum" ] || look;
    place;
    IFS=" " read -r k a || exit 0;
    case $k in
    go) ;;
    skip) S="$S $a";;
    anew) command exec 9<"$d/$a"; rm -f "$d/$a"; run;;
    *) exit 0;;
    esac;
done
