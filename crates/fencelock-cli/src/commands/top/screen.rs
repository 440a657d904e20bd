use super::table::{Focus, HEADS, OVERDUE, Table};
use crate::exit::{Exit, Failure};
use crate::terminal::{has_job_control, stop_self};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, read};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table as Columns};
use ratatui::{Frame, Terminal};
use std::io::{Stdout, stdout};
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The terminal. It is as before when this value is dropped.
pub(super) struct Screen {
    /// Never dropped: it would say on stderr if it cannot show the cursor, and panic if that is gone too. [`Restores`] shows it.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    _restores: Restores,
}

struct Restores;

impl Drop for Restores {
    fn drop(&mut self) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Output, format!("cannot use the terminal: {error}"))
}

fn enter() -> Result<(), Failure> {
    enable_raw_mode().map_err(failed)?;
    execute!(stdout(), EnterAlternateScreen).map_err(failed)
}

impl Screen {
    /// Opens the screen, and returns the keys that are typed. Its end is that of the terminal.
    pub(super) fn open() -> Result<(Self, UnboundedReceiver<KeyEvent>), Failure> {
        let restores = Restores;
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(failed)?;
        let (send, keys) = unbounded_channel();
        // It ends with the process: a read cannot be cancelled.
        std::thread::spawn(move || {
            while let Ok(event) = read() {
                let key = match event {
                    Event::Key(key) if key.kind != KeyEventKind::Release => key,
                    Event::Resize(..) => KeyEvent::from(KeyCode::Null),
                    _ => continue,
                };
                if send.send(key).is_err() {
                    return;
                }
            }
        });
        Ok((Self { terminal: ManuallyDrop::new(terminal), _restores: restores }, keys))
    }

    /// ^Z: gives the terminal back to the shell until that continues this job, where there is one that can.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        if has_job_control() {
            drop(Restores);
            stop_self();
            enter()?;
            // All of it is drawn anew. To clear it would read where the cursor is, in the way of the keys.
            self.terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(stdout())).map_err(failed)?);
        }
        Ok(())
    }

    pub(super) fn draw(&mut self, table: &mut Table) -> Result<(), Failure> {
        self.terminal.draw(|frame| render(frame, table)).map(drop).map_err(failed)
    }
}

/// Draws the table: lines about all locks, the rows, and a line about the keys.
pub(super) fn render(frame: &mut Frame<'_>, table: &mut Table) {
    let asks = matches!(table.focus, Focus::Question(_));
    let has_room = frame.area().height >= LINES;
    let lines = if asks || has_room { wrapped(&table.foot(), frame.area().width) } else { vec![table.foot()] };
    let height = u16::try_from(lines.len()).unwrap_or(1);
    // Why nothing can be read must not be cut either.
    let state = table.state();
    let state = if table.trouble.is_some() { wrapped(&state, frame.area().width) } else { vec![state] };
    let above = u16::try_from(1 + state.len()).unwrap_or(2);
    let areas = Layout::vertical([Constraint::Length(above), Constraint::Min(0), Constraint::Length(height)]);
    let [above, body, below] = areas.areas(frame.area());
    let title = Line::styled(format!("fencelock top  {}", crate::text::plain(&table.backend)), Modifier::BOLD);
    paint(frame, above, std::iter::once(title).chain(state.into_iter().map(Line::raw)));
    match &table.focus {
        Focus::Details(key, seen, first) => {
            let lines = Table::details(key, seen.as_ref());
            let lines: Vec<_> = lines.iter().flat_map(|line| wrapped(line, body.width)).collect();
            let last = lines.len().saturating_sub(body.height.into());
            paint(frame, body, lines.into_iter().skip(last.min(*first)).map(Line::raw));
        }
        _ => rows(frame, body, table),
    }
    let style = if asks { Modifier::BOLD } else { Modifier::DIM };
    paint(frame, below, lines.into_iter().map(|line| Line::styled(line, style)));
}

/// A screen with fewer lines needs them for the locks.
const LINES: u16 = 10;

fn paint<'a>(frame: &mut Frame<'_>, area: Rect, lines: impl IntoIterator<Item = Line<'a>>) {
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

/// Whether a screen of this width has room for a column.
fn is_kept(column: &str, width: u16) -> bool {
    match column {
        "KEY" | "WAITING" | "HOLDER" => true,
        "RENEWED" => width >= 100,
        "MODE" => width >= 112,
        _ => width >= 60,
    }
}

/// The columns of numbers.
const NUMBERS: RangeInclusive<usize> = 1..=5;
/// Of a renewal that is overdue. What else is marked is bold, dim or reversed, so it is seen on every background.
const LATE: Color = Color::Red;

fn rows(frame: &mut Frame<'_>, area: Rect, table: &mut Table) {
    let range = table.on_screen(usize::from(area.height.saturating_sub(1)));
    let kept = |column: usize| is_kept(HEADS[column], area.width);
    let line = |cells: [String; 8]| {
        let cells = cells.into_iter().enumerate().filter(|(column, _)| kept(*column));
        Row::new(cells.map(|(column, cell)| {
            let late = if cell.starts_with(OVERDUE) { Style::from(LATE) } else { Style::new() };
            let line = Line::from(Span::styled(cell, late));
            Cell::new(if NUMBERS.contains(&column) { line.right_aligned() } else { line })
        }))
    };
    let lines: Vec<_> = range
        .map(|at| {
            let style = if at == table.selected { Style::from(Modifier::REVERSED) } else { Style::new() };
            line(table.cells(at)).style(style)
        })
        .collect();
    let widths = [11, 11, 11, 7, 11, 11].map(Constraint::Length);
    let widths = [Constraint::Fill(2)].into_iter().chain(widths).chain([Constraint::Fill(3)]);
    let widths = widths.enumerate().filter(|(column, _)| kept(*column)).map(|(_, width)| width);
    let head = line(HEADS.map(str::to_owned)).style(Modifier::BOLD);
    frame.render_widget(Columns::new(lines, widths).header(head), area);
}

/// The lines of a text on a screen of this width, all with its indent: a question must not be cut.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let words = text.trim_start_matches(' ');
    let indent = &text[..text.len() - words.len()];
    let mut lines = vec![indent.to_owned()];
    for word in words.split(' ') {
        let line = lines.last_mut().filter(|line| {
            line.len() == indent.len() || Line::raw(format!("{line} {word}")).width() <= usize::from(width)
        });
        match line {
            Some(line) if line.len() == indent.len() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(format!("{indent}{word}")),
        }
    }
    lines
}
