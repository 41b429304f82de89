# Reads one request and answers with the number of words of its path.
read -r request
path=$(printf '%s' "$request" | sed 's/.*"path":"\([^"]*\)".*/\1/')
printf '{"output":{"words":%d}}\n' "$(wc -w < "$path")"
