import { tasksAfter, type Task } from "../src/tasks";

const milk: Task = { id: 1, text: "milk", done: false };

test("tasks are added with a number of their own, without white space around them", () => {
  const tasks = tasksAfter(tasksAfter([], { type: "add", text: " milk " }), { type: "add", text: "bread" });
  expect(tasks).toEqual([milk, { id: 2, text: "bread", done: false }]);
  expect(tasksAfter(tasks, { type: "add", text: "  " })).toBe(tasks);
});

test("what is done can be undone, and be removed", () => {
  const done = tasksAfter([milk], { type: "toggle", id: 1 });
  expect(done).toEqual([{ ...milk, done: true }]);
  expect(tasksAfter(done, { type: "toggle", id: 1 })).toEqual([milk]);
  expect(tasksAfter(done, { type: "clear" })).toEqual([]);
});
