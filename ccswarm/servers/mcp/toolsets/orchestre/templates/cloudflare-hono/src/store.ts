export interface Note {
  id: string;
  text: string;
  createdAt: string;
}

/** Where notes are kept. Each instance of a Worker has a memory of its own: for more than trying things out write a
 * store on D1 or KV. */
export interface Store {
  list(): Promise<Note[]>;
  get(id: string): Promise<Note | undefined>;
  add(text: string): Promise<Note>;
  remove(id: string): Promise<boolean>;
}

export class MemoryStore implements Store {
  private readonly notes = new Map<string, Note>();

  async list(): Promise<Note[]> {
    return [...this.notes.values()];
  }

  async get(id: string): Promise<Note | undefined> {
    return this.notes.get(id);
  }

  async add(text: string): Promise<Note> {
    const note = { id: crypto.randomUUID(), text, createdAt: new Date().toISOString() };
    this.notes.set(note.id, note);
    return note;
  }

  async remove(id: string): Promise<boolean> {
    return this.notes.delete(id);
  }
}
