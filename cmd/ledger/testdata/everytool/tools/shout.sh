# Reads one request and answers with its text in capital letters.
read -r request
text=$(printf '%s' "$request" | sed 's/.*"text":"\([^"]*\)".*/\1/' | tr a-z A-Z)
printf '{"output":{"text":"%s"}}\n' "$text"
