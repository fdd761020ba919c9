# Runs a container, attaches to it again after a restart of the engine, and writes how it ended.
#   attend.sh ENGINE CONTAINER STATE KEYS PROXY RULES OPTION...
# STATE gets one line: exit code, and whether it ran out of memory. KEYS must never be typed: they would detach the client. PROXY is the
# Python that runs the container's network proxy with RULES while it lives. OPTIONs are those of `run`. A hang-up is passed on.
engine=$1 container=$2 state=$3 keys=$4 python=$5 rules=$6
shift 6
exec 3<&0
trap '' INT QUIT TSTP
proxy= client= hung=
if [ -n "$python" ]; then
  "$python" -I -S "${0%/*}/proxy.py" "$rules" </dev/null >/dev/null 2>&1 &
  proxy=$!
fi
trap 'hung=1; "$engine" kill --signal HUP "$container" >/dev/null 2>&1; [ -z "$client" ] || kill "$client" 2>/dev/null' HUP TERM

follow() {
  "$engine" "$@" <&3 &
  client=$!
  wait "$client"
  code=$?
  client=
}

follow run --interactive --tty --detach-keys "$keys" --name "$container" "$@"
while [ -z "$hung" ]; do
  if said=$("$engine" container inspect --format '{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}' "$container" 2>&1); then
    case $said in
      created*) break ;;
      exited*|dead*|stopped*) set -- $said; code=$2; printf '%s %s\n' "$2" "$3" >"$state.new" && mv "$state.new" "$state"; break ;;
      running*|paused*)
        stty raw -echo opost onlcr 2>/dev/null
        follow attach --detach-keys "$keys" "$container"
        ;;
    esac
  else
    case $said in *"o such container"*|*"no container"*) break ;; esac
  fi
  sleep 0.1
done
[ -z "$proxy" ] || kill "$proxy" 2>/dev/null
exit "$code"
