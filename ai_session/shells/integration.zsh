# Reports to the terminal what this shell does. Read at the end of the session's .zshrc, and again when zsh was replaced
# by exec. @N@ is the session's nonce: it must reach no child, so nothing here may be exported.
if [[ -o aliases ]]; then __ais_a=1; else __ais_a=; fi
builtin unsetopt aliases
if [[ -o allexport ]]; then __ais_t=1; else __ais_t=; fi
builtin unsetopt allexport
__ais_d=@DIR@ __ais_f=@DIR@/c __ais_r= __ais_l=0 __ais_k= __ais_i=
builtin zmodload zsh/datetime 2>/dev/null

if [[ -n ${__ais_n-} ]]; then
  builtin unset __ais_n
  if [[ -r $__ais_d/state ]]; then
    { builtin . "$__ais_d/state" 2>/dev/null || builtin :; } always { TRY_BLOCK_ERROR=0; }
  fi
fi

__ais_m() { builtin printf '\e]7777;@N@;%s\a' "$1" >/dev/tty; }
__ais_s() { builtin return "$1"; }

# Start of a command.
__ais_b() {
  builtin set +xv
  __ais_r=$1
  builtin printf '%s\e]7777;@N@;C;%s;%s\a' "$2" "$1" "${EPOCHREALTIME-}" >/dev/tty
}

# End of a command. A status returned under ERR_EXIT would end the shell.
__ais_e() {
  builtin local o=$- z=$1
  if [[ -o err_exit || -o err_return ]]; then z=0; fi
  # The mark of a partial line would add a line of blanks to the log at each prompt.
  builtin unsetopt prompt_sp prompt_cr
  builtin setopt hist_ignore_space
  builtin emulate -L zsh
  __ais_l=$1 __ais_k=1
  __ais_m "D;$__ais_r;$1;${EPOCHREALTIME-};$o;${PWD//[[:cntrl:]]/?}"
  __ais_r=
  __ais_h
  builtin return $z
}

# First prompt hook. A command that is still open was aborted: its end is reported here.
__ais_p() {
  builtin local s=$? o=$-
  builtin emulate -L zsh
  __ais_l=$s
  if [[ -n $__ais_r ]]; then __ais_e $s; fi
  if [[ -z $__ais_k ]]; then __ais_m "A;;$s;${EPOCHREALTIME-};$o;${PWD//[[:cntrl:]]/?}"; fi
  __ais_k=
  builtin return $s
} 2>/dev/null
__ais_pe() { builtin emulate -L zsh; __ais_m P; } 2>/dev/null

# Also the last prompt hook: others may have replaced ours.
__ais_h() {
  builtin local s=$?
  builtin emulate -L zsh
  if [[ $precmd_functions[1] != __ais_p || $precmd_functions[-1] != __ais_h ]]; then
    precmd_functions=(__ais_p ${${precmd_functions:#__ais_p}:#__ais_h} __ais_h)
  fi
  if [[ $preexec_functions[-1] != __ais_pe ]]; then preexec_functions=(${preexec_functions:#__ais_pe} __ais_pe); fi
  if [[ $zshexit_functions[-1] != __ais_x ]]; then zshexit_functions=(${zshexit_functions:#__ais_x} __ais_x); fi
  # Not in PS1: an exported prompt would carry the nonce to children.
  if [[ ${widgets[zle-line-init]-} != user:__ais_li ]]; then
    if [[ -n ${widgets[zle-line-init]-} ]]; then builtin zle -A zle-line-init __ais_prior; fi
    builtin zle -N zle-line-init __ais_li
  fi
  # What the trigger starts with; in the command mode of vi it would be eaten otherwise.
  builtin bindkey '^^' kill-whole-line
  builtin bindkey -M vicmd '^^' vi-change-whole-line
  builtin return $s
} 2>/dev/null
# The line editor is ready. A hook of the person's own runs first; it may call us in turn.
__ais_li() {
  if [[ -n $__ais_i ]]; then builtin return; fi
  __ais_i=1
  if [[ -n ${widgets[__ais_prior]-} ]]; then builtin zle __ais_prior -- "$@"; fi
  __ais_i=
  if [[ $CONTEXT == start ]]; then __ais_m B; fi
} 2>/dev/null

__ais_x() {
  builtin local s=$?
  builtin emulate -L zsh
  if (( ZSH_SUBSHELL )); then builtin return; fi
  (
    builtin umask 077
    builtin unset -f -m '__ais_*'
    builtin typeset +x TERM SHLVL PWD OLDPWD TMUX TMUX_PANE COLUMNS LINES
    builtin typeset -m +x 'AI_SESSION_*' '__ais_*'
    {
      builtin printf 'builtin cd -- %q\n' "$PWD"
      builtin export -p
      builtin functions
      builtin alias -L
      builtin printf '# end of state\n'
    } >|"$__ais_d/state"
  )
  __ais_m "X;$__ais_r;$s;${EPOCHREALTIME-};;${PWD//[[:cntrl:]]/?}"
} 2>/dev/null

builtin unsetopt prompt_sp prompt_cr
builtin setopt hist_ignore_space
builtin command -p stty -ixon </dev/tty 2>/dev/null || builtin :
__ais_h
if [[ -n $__ais_t ]]; then builtin setopt allexport; fi
if [[ -n $__ais_a ]]; then builtin setopt aliases; fi
__ais_m "R;$$;$ZSH_VERSION"
