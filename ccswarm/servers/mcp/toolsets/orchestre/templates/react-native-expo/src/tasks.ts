export interface Task {
  id: number;
  text: string;
  done: boolean;
}

export type Action = { type: "add"; text: string } | { type: "toggle"; id: number } | { type: "clear" };

/** Tasks after an action; the same list where it changes nothing. */
export function tasksAfter(tasks: readonly Task[], action: Action): readonly Task[] {
  switch (action.type) {
    case "add": {
      const text = action.text.trim();
      const id = Math.max(0, ...tasks.map((task) => task.id)) + 1;
      return text === "" ? tasks : [...tasks, { id, text, done: false }];
    }
    case "toggle":
      return tasks.map((task) => (task.id === action.id ? { ...task, done: !task.done } : task));
    case "clear":
      return tasks.filter((task) => !task.done);
  }
}
