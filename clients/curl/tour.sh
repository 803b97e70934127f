#!/bin/sh
# The five-minute tour of relaxd with nothing but curl.
#
#   tour.sh [SERVER] [MODEL]      defaults: http://127.0.0.1:8000 model.pt2
#
# Prints each command before its answer. Stops with exit status 1 at the first answer that is not as expected,
# with 2 when there is nothing to send. The Compilation that it makes is deleted in the end, one that the server
# had before is not.
set -eu

server=${1:-http://127.0.0.1:8000}
server=${server%/}
model=${2:-model.pt2}

if [ ! -s "$model" ]; then
    cat >&2 <<EOF
There is no model file at $model. Make one with PyTorch:

  import torch
  program = torch.export.export(torch.nn.Linear(4, 2).eval(), (torch.randn(1, 4),))
  torch.export.save(program, "model.pt2")

or name one: $0 $server FILE.pt2
EOF
    exit 2
fi

folder=$(mktemp -d)
answer=$folder/answer
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

fail() {
    printf '\nThe tour ends here: %s\n' "$1" >&2
    exit 1
}

# The command as one could type it: arguments with other than plain characters in single quotes.
show() {
    printf '$ curl'
    for word in "$@"; do
        case $word in
            *[!A-Za-z0-9_./:@%=?+,-]*) printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
}

# ask STATUSES CURL-ARGUMENTS...: shows the command, runs it, shows the start of the answer, leaves the whole of it
# in $answer and its status in $status. Fails unless the status is one of STATUSES ("201 200").
ask() {
    wanted=$1
    shift
    show "$@"
    # Not --fail: that would hide the problem document, which says what to do.
    status=$(curl -sS -o "$answer" -w '%{http_code}' "$@") || fail "no answer from $server; is relaxd running there?"
    head -c 1500 "$answer"
    [ "$(wc -c <"$answer")" -le 1500 ] || printf '\n… (%s bytes in all)' "$(wc -c <"$answer" | tr -d ' ')"
    printf '\n(HTTP %s)\n' "$status"
    case " $wanted " in
        *" $status "*) ;;
        *) fail "expected HTTP $wanted, got $status" ;;
    esac
}

# expect TEXT: the last answer has this text, spaces aside.
expect() {
    tr -d ' \n' <"$answer" | grep -qF -- "$(printf %s "$1" | tr -d ' \n')" || fail "the answer does not have $1"
}

say() {
    printf '\n# %s\n' "$1"
}

say 'Is the server up?'
ask 200 "$server/healthz"

say 'Which passes does it have, and which recipes (named lists of passes)?'
ask 200 "$server/passes"
expect '"name": "fuse_tir"'
ask 200 "$server/recipes"
expect '"name": "course"'

say "Compile $model with the recipe \"course\". Prefer: wait lets the server answer when it is done."
# The inner quotes are curl's: without them a comma or semicolon in the path would end it.
ask '201 200' -H 'Prefer: wait=300' -F "model=@\"$model\"" -F 'request={"passes": "course"}' "$server/compile"
expect '"state": "succeeded"'
compiled=$status
# The first "id" of the document is the Compilation's.
id=$(tr '{,' '\n\n' <"$answer" | sed -n 's/^ *"id": *"\([^"]*\)".*/\1/p' | head -n 1)
[ -n "$id" ] || fail 'the compilation has no id'
# Name, shape and dtype of the first input, for the prediction below.
input='"signature":{"inputs":\[{"name":"\([^"]*\)","shape":\[\([^]]*\)\],"dtype":"\([^"]*\)"'
signature=$(tr -d ' \n' <"$answer")
name=$(printf %s "$signature" | sed -n "s/.*$input.*/\\1/p")
shape=$(printf %s "$signature" | sed -n "s/.*$input.*/\\2/p")
dtype=$(printf %s "$signature" | sed -n "s/.*$input.*/\\3/p")
[ -n "$name" ] || fail 'the compilation has no signature with an input'

say 'The compilations of this server, newest first.'
ask 200 "$server/compile?limit=3"
expect "\"id\": \"$id\""

say 'The IR after operator fusion: TVMScript, as text.'
ask 200 "$server/ir/fusion?id=$id"
expect 'R.function'

say 'The IR after the fused operators became one TensorIR loop nest each.'
ask 200 "$server/ir/fuse_tir?id=$id"
expect 'T.prim_func'

say "A prediction: input \"$name\" of shape [$shape], all of one value; a symbol of the shape is taken as 1."
case $dtype in
    bool) value=false ;;
    float* | bfloat*) value=0.5 ;;
    *) value=0 ;;
esac
data=$(awk -v shape="$shape" -v value="$value" '
    function nested(axis,    i, row, text) {
        if (axis > rank) return value
        row = nested(axis + 1)
        for (i = 1; i <= sizes[axis]; i++) text = text (i > 1 ? "," : "") row
        return "[" text "]"
    }
    BEGIN {
        rank = split(shape, sizes, ",")
        for (i = 1; i <= rank; i++) if (sizes[i] !~ /^[0-9]+$/) sizes[i] = 1
        print nested(1)
    }')
printf '{"model": "%s", "inputs": {"%s": %s}}' "$id" "$name" "$data" >"$folder/infer.json"
printf '$ cat %s\n%s\n' "$folder/infer.json" "$(head -c 300 "$folder/infer.json")"
# From a file, because the numbers of an image are more than a command line holds.
ask 200 -H 'Content-Type: application/json' --data-binary "@$folder/infer.json" "$server/infer"
expect '"outputs"'

say 'An error says what is wrong and what to change, as application/problem+json.'
ask 400 -F "model=@\"$model\"" -F 'request={"passes": ["fuse_tirr"]}' "$server/compile"
expect '"type": "/problems/unknown-pass"'

if [ "$compiled" = 201 ]; then
    say 'Delete the compilation; then the server does not know it any more.'
    ask 204 -X DELETE "$server/compile/$id"
    ask 404 "$server/compile/$id"
    expect '"type": "/problems/unknown-compilation"'
else
    say "Compilation $id was there before this tour (HTTP 200), so it stays. To delete it:"
    show -X DELETE "$server/compile/$id"
fi

printf '\nThe tour is complete.\n'
